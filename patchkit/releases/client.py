"""The user's own package client, as a child process.

Owns which client is asked and how: pip (of the environment, of patchkit's interpreter, or
on the PATH), else uv.  So the index, the proxy, the certificates and the credentials are
the user's.  Nothing of a downloaded archive is run: wheels are only saved, and the build
backend of a source distribution is stood in for (``shim/``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from patchkit.errors import UsageError

from .model import Unavailable, Wish

#: Called now and then with what is downloaded and how many bytes have come.
Progress = Callable[[str, int], None]

#: Interpreters that are tried for a release that has no wheel for the one at hand.
_PYTHONS = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9")
# glibc 2.17 (manylinux2014) to 2.39; pip takes each --platform literally.
_GLIBC = range(39, 16, -1)
_SECONDS = 1800


class Client(NamedTuple):
    """A package client.  ``kind`` is ``pip`` or ``uv``; ``command`` begins each call."""

    kind: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return self.kind


def find_client(named: str | None, environ: Mapping[str, str], python: str | None = None) -> Client:
    """The client to ask: ``named`` (``pip``, ``uv``), else ``PATCHKIT_CLIENT``, else uv where
    uv made the environment, else the first pip there is, else uv."""
    wanted = named or environ.get("PATCHKIT_CLIENT") or ""
    if wanted not in ("", "pip", "uv"):
        raise UsageError(f"{wanted!r} is no client", hint="choose pip or uv")
    uv = shutil.which("uv", path=environ.get("PATH"))
    if wanted == "uv" or (not wanted and uv and _made_by_uv(python)):
        if uv is None:
            raise Unavailable("uv is not on the PATH", hint="install uv, or use --client pip")
        return Client("uv", (uv,))
    for interpreter in (python, sys.executable):
        if interpreter and _has_pip(interpreter):
            return Client("pip", (interpreter, "-m", "pip"))
    for name in ("pip", "pip3"):
        found = shutil.which(name, path=environ.get("PATH"))
        if found:
            return Client("pip", (found,))
    if uv and not wanted:
        return Client("uv", (uv,))
    raise Unavailable(
        "there is no pip and no uv to fetch releases with",
        hint="install one of them, or name a folder of archives: --find-links DIR",
    )


def _made_by_uv(python: str | None) -> bool:
    if not python:
        return False
    try:
        with open(
            os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg"), encoding="utf-8"
        ) as file:
            return any(line.partition("=")[0].strip() == "uv" for line in file)
    except (OSError, UnicodeError):
        return False


def _has_pip(python: str) -> bool:
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('pip') is None)"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


# -- which releases there are -----------------------------------------------------------


def versions(client: Client, distribution: str, environ: Mapping[str, str]) -> list[str]:
    """Every release in the index, pre-releases too, newest first.

    Raises :class:`Unavailable` with the client's own words.
    """
    command = [*_pip(client), "index", "versions", "--pre", distribution]
    done = _run(command, _environment(environ, client))
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise Unavailable(
            f"the index has no {distribution}: {_last_words(done)}",
            hint="check the name, the network and the index that pip or uv is set up with;"
            " or go on --offline with what is cached",
        )
    return [text.strip() for text in found[1].split(",")]


def _pip(client: Client) -> list[str]:
    """pip's command, which uv runs as a tool of its own where there is no other."""
    if client.kind == "pip":
        return list(client.command)
    return [*client.command, "tool", "run", "--quiet", "pip"]


# -- downloads --------------------------------------------------------------------------


@contextmanager
def downloaded(
    client: Client,
    distribution: str,
    version: str,
    wish: Wish,
    environ: Mapping[str, str],
    progress: Progress,
) -> Iterator[str]:
    """The archive of a release (or the folder where uv unpacked its wheel) as a path that is
    gone afterwards.  A wheel for the wish, else for any interpreter, else the sdist.

    Raises :class:`Unavailable` where the index has none.
    """
    with tempfile.TemporaryDirectory(prefix="patchkit-fetch-") as folder:
        yield _download(client, distribution, version, wish, environ, progress, folder)


def _download(
    client: Client,
    distribution: str,
    version: str,
    wish: Wish,
    environ: Mapping[str, str],
    progress: Progress,
    folder: str,
) -> str:
    release = f"{distribution}=={version}"
    words = ""
    with _watched(folder, f"{distribution} {version}", progress):
        for number, (command, kind) in enumerate(_attempts(client, release, distribution, wish)):
            target = os.path.join(folder, str(number))
            scratch = os.path.join(folder, f"tmp{number}")
            os.makedirs(scratch)
            flag = "--target" if kind == "folder" else "--dest"
            done = _run(
                [*command, flag, target, release],
                {**_environment(environ, client, shim=kind == "sdist"), "TMPDIR": scratch},
            )
            found = _found(target, kind) if done.returncode == 0 else None
            if found is not None:
                return found
            words = words or _last_words(done)
    raise Unavailable(
        f"{distribution} {version} cannot be had from the index: {words}",
        hint=f"patchkit fetch --list {distribution} shows the releases there are",
    )


def _found(target: str, kind: str) -> str | None:
    names = [n for n in os.listdir(target) if n[0] != "."] if os.path.isdir(target) else []
    if kind == "folder":
        return target if any(n.endswith(".dist-info") for n in names) else None
    return os.path.join(target, names[0]) if len(names) == 1 else None


def _attempts(
    client: Client, release: str, distribution: str, wish: Wish
) -> Iterator[tuple[list[str], str]]:
    """The calls to try in turn, and what each yields."""
    wheels = ["--no-deps", "--only-binary", ":all:"]
    if client.kind == "uv":
        base = [*client.command, "pip", "install", *wheels, "--quiet", "--link-mode", "copy"]
        named = ["--python-platform", wish.platform] if wish.platform else []
        for python in _pythons(wish):
            yield [*base, *named, *(["--python-version", python] if python else [])], "folder"
    else:
        base = [*_pip(client), "download", *wheels, *_QUIET]
        for python in _pythons(wish):
            chosen = [] if python is None and wish.platform is None else _tags(python, wish)
            yield [*base, *chosen], "wheel"
    yield (
        [
            *(*_pip(client), "download", "--no-deps", "--no-binary", distribution),
            *("--no-build-isolation", "--use-pep517", *_QUIET),
        ],
        "sdist",
    )


_QUIET = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")


def _pythons(wish: Wish) -> list[str | None]:
    if wish.python:
        return [wish.python]
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return [None, *(python for python in _PYTHONS if python != own)]


def _tags(python: str | None, wish: Wish) -> list[str]:
    out = ["--python-version", python] if python else []
    if wish.platform:
        return [*out, "--platform", wish.platform]
    if not sys.platform.startswith("linux"):
        return out
    import platform

    machine = platform.machine()
    for minor in _GLIBC:
        out += ["--platform", f"manylinux_2_{minor}_{machine}"]
    return [*out, "--platform", f"manylinux2014_{machine}", "--platform", f"linux_{machine}"]


# -- the child --------------------------------------------------------------------------


def _environment(
    environ: Mapping[str, str], client: Client, *, shim: bool = False
) -> dict[str, str]:
    """The user's own, but for what would turn Python to other modules."""
    out = {k: v for k, v in environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    out["PYTHONWARNINGS"] = "ignore"
    out["PIP_NO_COLOR"] = out["NO_COLOR"] = "1"
    if client.kind == "uv":
        # pip as uv's tool reads pip's settings only; the index of uv's is handed on.
        first = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
        more = environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL")
        if first:
            out.setdefault("PIP_INDEX_URL", first)
        if more:
            out.setdefault("PIP_EXTRA_INDEX_URL", more)
    if shim:
        out["PYTHONPATH"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")
    return out


def _run(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{os.path.basename(command[0])} did not end within {_SECONDS // 60} minutes",
            hint="check the network, and run it again: what came so far is not asked for again",
        ) from None
    except OSError as error:
        raise Unavailable(
            f"{command[0]} cannot be run: {error.strerror}",
            hint="take the other client (--client pip, --client uv), or a folder of archives"
            " (--find-links DIR)",
        ) from error


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The line of the client's output that says why, without addresses (they may hold
    credentials) and without the list of all versions."""
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines()]
    lines = [line for line in lines if line]
    marked = [line for line in lines if re.match(r"(ERROR|error|×)", line)]
    line = (marked or lines or [f"exit code {done.returncode}"])[0]
    line = re.sub(r"\w+://\S+", "…", line)
    line = re.sub(r"\(from versions: [^)]{60,}\)", "(there are others)", line)
    return re.sub(r"^(ERROR|error):?\s*", "", line)


@contextmanager
def _watched(folder: str, label: str, progress: Progress) -> Iterator[None]:
    """Tell how much has come, by the size of what the client writes."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            progress(label, _size(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _size(folder: str) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
