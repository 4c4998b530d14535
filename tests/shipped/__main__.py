"""Every shipped bundle on every release that it says something about.

For each release of SGLang with the FlashInfer that its wheel pins, and for each release of
FlashInfer: the verdict of ``patchkit matrix``, and the whole round on the unpacked wheel
(apply, verify, revert, every path as before, every byte as RECORD says).  Writes the tables
into docs/bundles.md.  Exit code 1 where a verdict is missing or false, or a round leaves
something.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from patchkit.releases.client import downloaded, find_client
from patchkit.releases.model import Wish
from tests import releases

BUNDLES = ("sm120-fusion", "pcie-custom-allreduce", "symm-mem-sm120")
SGLANG = "sglang>=0.5.1,<=0.5.23"
FLASHINFER = "flashinfer-python>=0.3.1,<=0.7.4"
#: A release of FlashInfer alone is tried beside this one, which is small and the best known.
BESIDE = ("sglang", "0.5.9")
DOCUMENT = releases.ROOT / "docs" / "bundles.md"
MARKS = ("<!-- made by: python3 dev.py bundles -->", "<!-- end of what is made -->")


class Pair(NamedTuple):
    """A release of SGLang, one of FlashInfer, and the bundles to try on them with what each is
    expected to be: what ``matrix`` says of the pair."""

    sglang: str
    flashinfer: str | None
    expected: tuple[tuple[str, str], ...]


class Tool:
    """The command, as a user runs it, with the bundles of this checkout."""

    def __init__(self, home: Path, archives: Path | None) -> None:
        self._archives = archives
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("PATCHKIT_")}
        self._env.update(HOME=str(home), XDG_CACHE_HOME=str(releases.BUILD / "cache"))
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """One call, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "patchkit", "--bundles", releases.ROOT, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._env,
            check=False,
        )

    def matrix(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of ``matrix``."""
        links = ["--find-links", str(self._archives)] if self._archives else []
        done = self.run("matrix", *arguments, *links)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr)
        return done.returncode, done.stdout


def tables(tool: Tool) -> tuple[list[Pair], list[str], str]:
    """The pairs that the verdicts speak of, what is wrong with verdicts, and the tables."""
    pairs: list[Pair] = []
    problems: list[str] = []
    texts = []
    for names, asked in ((BUNDLES, SGLANG), (BUNDLES[:1], FLASHINFER)):
        code, output = tool.matrix(*names, "--releases", asked, "--json")
        data: dict[str, Any] = json.loads(output)
        if code:
            problems.append(f"false claims: {data['false_claims']}")
        found: dict[str, dict[str, str]] = {}
        pins: dict[str, str] = {}
        for bundle in data["bundles"]:
            for row in bundle["rows"]:
                version = row["version"]
                problems += [
                    f"{bundle['name']}: {cell['distribution']} {cell['version']}: {cell['state']}"
                    for cell in (row, *row["pins"])
                    if cell["state"] not in ("applies", "upstream", "unneeded")
                ]
                found.setdefault(version, {})[bundle["name"]] = row["state"]
                for cell in row["pins"]:
                    pins[version] = cell["version"]
        for version, states in found.items():
            if asked is SGLANG:
                pairs.append(Pair(version, pins.get(version), tuple(states.items())))
            else:
                pairs.append(Pair(BESIDE[1], version, tuple((n, "applies") for n in states)))
        texts.append(tool.matrix(*names, "--releases", asked, "--markdown")[1].strip())
    return pairs, problems, "\n\n".join(texts)


# -- the rounds -----------------------------------------------------------------------------


class Trees:
    """Unpacked releases, each downloaded when it is needed and given away with the next one of
    its name."""

    def __init__(self, folder: Path, archives: Path | None) -> None:
        self._folder = folder
        self._archives = archives
        self._held: dict[str, tuple[str, Path]] = {}

    def get(self, name: str, version: str) -> Path:
        """A site-packages folder with this release alone, as an installer leaves it."""
        held = self._held.get(name)
        if held is not None and held[0] == version:
            return held[1]
        if held is not None:
            shutil.rmtree(held[1])
        tree = self._folder / f"{name}-{version}"
        with self._archive(name, version) as archive:
            (unpack_wheel if archive.suffix == ".whl" else unpack_sdist)(archive, tree)
        self._held[name] = (version, tree)
        return tree

    @contextmanager
    def _archive(self, name: str, version: str) -> Iterator[Path]:
        stem = f"{releases.file_name(name)}-{version}"
        for folder in filter(None, (self._archives, releases.BUILD / "wheels")):
            for path in (*folder.glob(f"{stem}-*.whl"), *folder.glob(f"{stem}.tar.gz")):
                yield path
                return
        client = find_client(None, os.environ)
        with downloaded(client, name, version, Wish(), os.environ, lambda *_: None) as got:
            yield Path(got)


def unpack_wheel(archive: Path, tree: Path) -> None:
    """What an installer lays into site-packages."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tree)


def unpack_sdist(archive: Path, tree: Path) -> None:
    """The packages of a source distribution, and a RECORD of them: such a release has no
    wheel, and cannot be built any more."""
    tree.mkdir()
    rows = []
    info = f"{archive.name.removesuffix('.tar.gz')}.dist-info"
    with tarfile.open(archive) as opened:
        for member in opened:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if not member.isfile() or path.parts[:1] not in (("flashinfer",), ("PKG-INFO",)):
                continue
            data = opened.extractfile(member)
            assert data is not None
            target = PurePosixPath(info, "METADATA") if path.name == "PKG-INFO" else path
            content = data.read()
            (tree / target).parent.mkdir(parents=True, exist_ok=True)
            (tree / target).write_bytes(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            rows.append(f"{target},sha256={digest.rstrip('=')},{len(content)}")
    rows.append(f"{info}/RECORD,,")
    (tree / info / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")


def rounds(tool: Tool, pair: Pair, trees: Trees, place: Path) -> Iterator[str]:
    """What goes wrong on the way there and back; the folder is as before in the end."""
    found = [trees.get("sglang", pair.sglang)]
    if pair.flashinfer:
        found.append(trees.get("flashinfer-python", pair.flashinfer))
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for tree in found:
        subprocess.run(["cp", "-al", f"{tree}/.", place], check=True)
    before = releases.snapshot(place)
    for name, expected in pair.expected:
        yield from (f"{name}: {text}" for text in _round(tool, name, expected, place, before))
    yield from releases.record_problems(place, unlisted=False)


def _round(
    tool: Tool, name: str, expected: str, place: Path, before: releases.Snapshot
) -> Iterator[str]:
    for command in (("apply", name), ("verify", name), ("status",)):
        done = tool.run("--root", place, *command)
        if done.returncode:
            yield f"{command[0]}: exit code {done.returncode}: {done.stderr.strip()}"
            return
    changed = releases.changed_paths(before, releases.snapshot(place, ignore=(".patchkit",)))
    changed = [path for path in changed if path != "."]
    if bool(changed) is not (expected == "applies"):
        yield f"{expected}, and {len(changed)} files were changed"
    if changed:
        if not any(path.endswith(".py") for path in changed):
            yield "no module was changed"
        done = tool.run("--root", place, "revert", "--all")
        if done.returncode:
            yield f"revert: exit code {done.returncode}: {done.stderr.strip()}"
    yield from releases.diff_snapshots(before, releases.snapshot(place))[:5]


# -- the document ---------------------------------------------------------------------------


def written(text: str, made: str) -> str:
    """The document with what is between the marks replaced."""
    start, end = MARKS
    head, _, rest = text.partition(start)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{DOCUMENT} has no {start} … {end}")
    return f"{head}{start}\n\n{made}\n\n{end}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """All of it."""
    parser = argparse.ArgumentParser(prog="dev.py bundles", description=__doc__)
    parser.add_argument("--archives", type=Path, help="a folder of wheels and sdists to use")
    parser.add_argument("--only", default="", help="only pairs with this version, as 0.5.9")
    parser.add_argument("--no-rounds", action="store_true", help="the verdicts alone")
    parser.add_argument("--check", action="store_true", help="leave the document as it is")
    given = parser.parse_args(arguments)
    bad = 0
    with tempfile.TemporaryDirectory(dir=releases.BUILD, prefix="shipped-") as folder:
        scratch = Path(folder)
        (scratch / "home").mkdir()
        tool = Tool(scratch / "home", given.archives)
        pairs, problems, made = tables(tool)
        print(made, flush=True)
        for problem in problems:
            bad += 1
            print(f"FAILED  {problem}", flush=True)
        trees = Trees(scratch, given.archives)
        done = 0
        for pair in [] if given.no_rounds else pairs:
            what = f"sglang {pair.sglang}, flashinfer-python {pair.flashinfer}"
            if given.only and given.only not in re.split("[ ,]+", what):
                continue
            begin = time.monotonic()
            found = list(rounds(tool, pair, trees, scratch / "place"))
            done += 1
            bad += bool(found)
            mark = "FAILED" if found else "ok    "
            print(f"{mark}  {what}  {time.monotonic() - begin:.0f} s", flush=True)
            for line in found:
                print(f"        {line}", flush=True)
    text = DOCUMENT.read_text(encoding="utf-8")
    if written(text, made) != text:
        if given.check:
            bad += 1
            print(f"FAILED  the tables in {DOCUMENT} are not these")
        else:
            DOCUMENT.write_text(written(text, made), encoding="utf-8")
            print(f"written: {DOCUMENT}")
    print(f"{len(pairs)} pairs of releases, {done} rounds, {bad} problems")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
