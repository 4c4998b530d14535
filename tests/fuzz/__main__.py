"""``python3 dev.py fuzz [--minutes N] [TARGET …]``: atheris on each target, one after another.

The seeds and what was found interesting are kept in ``build/fuzz/TARGET/corpus``, so that a
later run goes on there; an input that breaks a promise is written to ``build/fuzz/TARGET`` and
shown.  The exit code is 1 where there was one.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.releases import BUILD

#: What an input may cost: memory in MiB, seconds, and its own size in bytes.
MEMORY, SECONDS, LARGEST = 2048, 20, 20_000
_NAMES = (
    *("patch", "place", "mapping", "manifest", "lock", "assertion", "record", "state", "journal"),
)


def fuzz(name: str, minutes: float) -> tuple[int, int, list[Path]]:
    """Run one target in a process of its own: executions, code paths, inputs that broke it."""
    folder = BUILD / "fuzz" / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "tests.fuzz", "--worker", name, str(corpus)),
        *(f"-artifact_prefix={folder}/", f"-dict={folder / 'words'}", "-print_final_stats=1"),
        *(f"-max_total_time={round(minutes * 60)}", f"-timeout={SECONDS}"),
        *(f"-rss_limit_mb={MEMORY}", f"-max_len={LARGEST}", "-verbosity=1"),
    ]
    before = set(folder.glob("*-*"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        log = process.stdout.read().decode("utf-8", "replace")
    (folder / "log").write_text(log, encoding="utf-8")
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    covered = re.findall(r"\bft: (\d+)", log)
    found = sorted(set(folder.glob("*-*")) - before)
    if process.returncode and not found:
        sys.exit(f"the fuzzer itself failed; see {folder / 'log'}")
    return int(runs[1]) if runs else 0, int(covered[-1]) if covered else 0, found


def worker(name: str, arguments: list[str]) -> None:
    """The fuzzer, in this process; does not come back."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=["patchkit", "tomli", "packaging"]):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    folder = Path(arguments[0])
    for data in target.seeds():
        (folder / hashlib.sha256(data).hexdigest()).write_bytes(data)
    words = "".join(f'"{_escaped(word)}"\n' for word in target.words)
    (folder.parent / "words").write_text(words, encoding="ascii")

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            plain: bytes = atheris.Mutate(data, len(data))
            return plain
        return target.mutate(data, random)[:largest]

    options: dict[str, Any] = {"custom_mutator": mutate}
    atheris.Setup([sys.argv[0], *arguments], target.check, **options)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in word)


def main(arguments: list[str]) -> int:
    """Parse, fuzz, and print a table in Markdown."""
    if arguments[:1] == ["--worker"]:
        worker(arguments[1], arguments[2:])
        return 0
    parser = argparse.ArgumentParser(prog="dev.py fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="for each target (default: 1)")
    parser.add_argument("target", nargs="*", help=", ".join(_NAMES))
    options = parser.parse_args(arguments)
    unknown = set(options.target) - set(_NAMES)
    if unknown:
        parser.error(f"no target is called {', '.join(sorted(unknown))}: {', '.join(_NAMES)}")
    print("| target | executions | features | findings |\n| --- | ---: | ---: | --- |", flush=True)
    bad = False
    for name in options.target or _NAMES:
        runs, covered, found = fuzz(name, options.minutes)
        bad = bad or bool(found)
        shown = ", ".join(str(path.relative_to(BUILD.parent)) for path in found) or "none"
        print(f"| {name} | {runs:,} | {covered:,} | {shown} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
