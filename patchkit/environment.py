"""Which environment: the site directories of a Python, found by looking at it.

Reads the file system and never changes it; never imports, and never runs code of, what is
installed.  An interpreter that is no virtual environment is the one thing that is run:
once, isolated and without its ``site`` start-up (``-I -S``), to say where its packages are.

It lies on the path of ``verify``, so it imports nothing that costs.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .errors import Refused, UsageError
from .fsio import MAX_METADATA, read_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .distributions import Listing

# Seconds that an interpreter may take to say where its packages are.  A cold one on a
# network file system takes a few.
_ASK_TIMEOUT = 30.0

# Answers NUL-separated and as raw bytes: a path may hold anything but NUL, and the child
# then needs no json.  ``getsitepackages`` needs no site start-up; without it no ``.pth``
# file and no sitecustomize of the target is executed.
_ASK = (
    "import os, site, sys\n"
    "fields = ['patchkit', sys.executable or '', os.path.dirname(os.__file__),"
    " site.getusersitepackages() or '', *site.getsitepackages()]\n"
    "sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, fields)))\n"
)


#: What names the environment where no option does, the first one that is set.
VARIABLES = ("PATCHKIT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX")


class Environment:
    """Where the packages of one Python are.

    ``search`` holds every existing site directory in the order that Python imports from.
    ``site_packages`` is the first of them that is not a user's own (``~/.local``), so
    that it stays the same whoever looks and whether or not they have one.
    ``externally_managed`` is PEP 668's marker; a virtual environment never has it.

    ``is_plain`` says of a root that git has no say in it, though it may lie in a checkout.

    An environment remembers the directory listings it has read: open a new one to see
    what was installed meanwhile.
    """

    def __init__(
        self,
        site_packages: str,
        search: tuple[str, ...],
        python: str | None = None,
        *,
        externally_managed: bool = False,
        is_root: bool = False,
        is_plain: bool = False,
    ) -> None:
        self.site_packages = site_packages
        self.search = search
        self.python = python
        self.externally_managed = externally_managed
        self.is_root = is_root
        self.is_plain = is_plain
        self._listings: dict[str, Listing] = {}


def open_environment(
    python: str | None, root: str | None, environ: Mapping[str, str]
) -> Environment:
    """The environment that the options or the variables name, else the running Python's.

    ``root`` is a directory used as site-packages as it is.  ``python`` is an interpreter
    (or its name on ``PATH``), a virtual environment or a conda prefix.  Without either:
    ``PATCHKIT_PYTHON``, ``VIRTUAL_ENV``, ``CONDA_PREFIX``, the interpreter that runs this.

    Raises UsageError when both are given or one is empty, and Refused with the code
    ``no-environment`` when what is named is none; the message says who named it.
    """
    if python is not None and root is not None:
        raise UsageError(
            "--python and --root cannot be given together",
            hint="name the environment by one of them",
        )
    for option, value in (("--python", python), ("--root", root)):
        if value == "":  # an unset shell variable, which would mean the working directory
            raise UsageError(f"{option} is empty", hint=f"check the value given to {option}")
    if root is not None:
        return _from_root(root)
    if python is not None:
        return _from_path(python, "--python", environ)
    for variable in VARIABLES:
        value = environ.get(variable)
        if value:
            return _from_path(value, variable, environ)
    return _from_running(environ)


def refuse_environment(message: str, hint: str) -> NoReturn:
    """Raise :class:`Refused` (``no-environment``)."""
    raise Refused(message, code="no-environment", hint=hint)


def looked_at(path: str) -> os.stat_result | None:
    """The status of what a path leads to; None where nothing is there.

    ``os.path.isfile`` and its like also say no where the disk fails or permission is missing;
    what is installed must not be taken for absent then.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


HINT = "name an interpreter or a virtual environment with --python, or site-packages with --root"


def _why_not(path: str) -> str:
    """Why nothing is seen at a path."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    return "is not a directory"


def _from_root(root: str) -> Environment:
    path = os.path.abspath(os.path.expanduser(root))
    status = looked_at(path)
    if status is None or not stat.S_ISDIR(status.st_mode):
        hint = "give the directory that holds the packages"
        refuse_environment(f"--root {root} {_why_not(path)}", hint)
    if os.path.isfile(os.path.join(path, "pyvenv.cfg")):
        refuse_environment(
            f"--root {root} is a virtual environment, not the folder of its packages",
            f"name it with --python {root}",
        )
    plain = os.path.lexists(os.path.join(path, ".patchkit"))  # a checkout has it in its git dir
    return Environment(path, (path,), is_root=True, is_plain=plain)


def _from_path(given: str, source: str, environ: Mapping[str, str]) -> Environment:
    """What ``--python`` or a variable (``source``) names."""
    hint = HINT
    if source in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        hint = f"activate the environment again, or unset {source}"
    elif os.sep not in given and not os.path.lexists(given):
        import shutil

        given = shutil.which(given, path=environ.get("PATH", os.defpath)) or given
    given = os.path.expanduser(given)  # the shell leaves --python=~/env as it is
    # Not resolved: the bin/python of a virtual environment is a symlink out of it.
    path = os.path.abspath(given)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        gone = "is a link to nothing" if os.path.lexists(path) else "does not exist"
        refuse_environment(f"{source} names {given}, which {gone}", hint)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        refuse_environment(f"{source} names {given}, which cannot be looked at: {reason}", hint)
    if stat.S_ISDIR(mode):
        if os.path.isfile(os.path.join(path, "pyvenv.cfg")):
            return _from_venv(path, environ)
        if os.path.isdir(os.path.join(path, "conda-meta")):
            return _from_conda(path, environ)
        for name in ("bin/python3", "bin/python", "python3", "python"):
            candidate = os.path.join(path, name)
            if os.path.isfile(candidate):
                hint = f"name the interpreter itself: --python {candidate}"
                break
        refuse_environment(f"{source} names {given}, which is no virtual environment", hint)
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        refuse_environment(f"{source} names {given}, which is not an interpreter", hint)
    if os.path.basename(path).startswith(("python", "pypy")):
        prefix = os.path.dirname(os.path.dirname(path))
        if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
            return _from_venv(prefix, environ, path)
        if os.path.isdir(os.path.join(prefix, "conda-meta")):
            return _from_conda(prefix, environ, path)
    return _from_interpreter(path, f"{given} ({source})", environ)


def _from_running(environ: Mapping[str, str]) -> Environment:
    executable = sys.executable or None
    if os.path.isfile(os.path.join(sys.prefix, "pyvenv.cfg")):
        return _from_venv(sys.prefix, environ, executable)
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return _from_conda(sys.prefix, environ, executable)
    import site

    user = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    stdlib = os.path.dirname(os.__file__)
    return _from_site_dirs(site.getsitepackages(), user, stdlib, executable, "this Python")


class _Answer(NamedTuple):
    """What an interpreter said of itself."""

    executable: str
    stdlib: str
    user: str
    sites: tuple[str, ...]


def _ask(path: str, what: str, environ: Mapping[str, str]) -> _Answer:
    """Run an interpreter once.  Its environment loses every variable that steers Python."""
    import subprocess

    child = {
        key: value
        for key, value in environ.items()
        if not key.startswith("PYTHON") and key != "__PYVENV_LAUNCHER__"
    }
    try:
        done = subprocess.run(
            [path, "-I", "-S", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=child,
            timeout=_ASK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        refuse_environment(f"{what} did not answer within {_ASK_TIMEOUT:.0f} seconds", HINT)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        refuse_environment(f"{what} cannot be run: {reason}", HINT)
    fields = [os.fsdecode(part) for part in done.stdout.split(b"\0")]
    if done.returncode != 0 or fields[0] != "patchkit" or len(fields) < 4:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = f" (it said: {lines[0][:120]})" if lines else ""
        refuse_environment(f"{what} is not a Python 3 interpreter{said}", HINT)
    return _Answer(fields[1], fields[2], fields[3], tuple(fields[4:]))


def _from_interpreter(path: str, what: str, environ: Mapping[str, str]) -> Environment:
    answer = _ask(path, what, environ)
    # A shim or a wrapper script may stand in front of a virtual environment's Python.
    prefix = os.path.dirname(os.path.dirname(answer.executable))
    if answer.executable and os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        return _from_venv(prefix, environ, answer.executable)
    user = None if environ.get("PYTHONNOUSERSITE") else answer.user
    return _from_site_dirs(answer.sites, user, answer.stdlib, answer.executable or path, what)


def _from_site_dirs(
    sites: Iterable[str], user: str | None, stdlib: str, python: str | None, what: str
) -> Environment:
    shared = _existing(sites)
    search = _existing([user, *shared]) if user else shared
    if not search:
        refuse_environment(f"{what} has no site-packages directory", "name one with --root")
    marker = os.path.join(stdlib, "EXTERNALLY-MANAGED")
    return Environment(
        (shared or search)[0], tuple(search), python, externally_managed=os.path.isfile(marker)
    )


def _existing(directories: Iterable[str]) -> list[str]:
    """Those that are directories, each once, also where two names lead to one."""
    seen: set[tuple[int, int]] = set()
    out = []
    for directory in directories:
        try:
            info = os.stat(directory)
        except OSError:
            continue
        identity = (info.st_dev, info.st_ino)
        if stat.S_ISDIR(info.st_mode) and identity not in seen:
            seen.add(identity)
            out.append(directory)
    return out


def _from_venv(
    prefix: str, environ: Mapping[str, str], executable: str | None = None
) -> Environment:
    """A virtual environment (PEP 405), from ``pyvenv.cfg`` and its folders."""
    config = _read_pyvenv_cfg(os.path.join(prefix, "pyvenv.cfg"))
    version = config.get("version_info") or config.get("version") or ""
    site_dirs = _site_dirs(prefix, version)
    python = os.path.join(prefix, "bin", "python")
    if not os.path.lexists(python):
        python = executable or ""
    if config.get("include-system-site-packages", "").lower() == "true":
        base = _base_interpreter(config)
        if base is None:
            refuse_environment(
                f"the virtual environment {prefix} uses the packages of a Python that"
                f" is no longer at {config.get('home', 'its place')}",
                "make the virtual environment again, or name site-packages with --root",
            )
        answer = _ask(base, f"{base} (home of {prefix})", environ)
        user = [] if environ.get("PYTHONNOUSERSITE") else [answer.user]
        site_dirs = _existing([*site_dirs, *user, *answer.sites])
    return Environment(site_dirs[0], tuple(site_dirs), python or None)


def _read_pyvenv_cfg(path: str) -> dict[str, str]:
    try:
        lines = read_plain(path, MAX_METADATA).decode("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        refuse_environment(f"{path} cannot be read: {error.strerror}", HINT)
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _base_interpreter(config: dict[str, str]) -> str | None:
    home = config.get("home", "")
    parts = (config.get("version_info") or config.get("version") or "").split(".")
    names = [f"python{'.'.join(parts[:2])}", "python3", "python", "pypy3"]
    candidates = [config.get("base-executable", ""), config.get("executable", "")]
    candidates += [os.path.join(home, name) for name in names if home]
    return next((path for path in candidates if path and os.path.isfile(path)), None)


def _site_dirs(prefix: str, version: str) -> list[str]:
    """``lib/pythonX.Y/site-packages`` of a prefix, and that of ``lib64`` when it is another.

    Several versions may have left folders in ``lib``; ``version`` or else the names that
    ``bin/python`` leads to say which one runs.
    """
    lib = os.path.join(prefix, "lib")
    try:
        names = os.listdir(lib)
    except OSError:
        names = []
    names = [
        name
        for name in sorted(names)
        if name.startswith(("python3.", "pypy3."))
        and os.path.isdir(os.path.join(lib, name, "site-packages"))
    ]
    if not names:
        refuse_environment(
            f"{prefix} has no lib/python3.X/site-packages", "name site-packages with --root"
        )
    if len(names) > 1:
        short = ".".join(version.split(".")[:2])
        if short:
            names = [name for name in names if _version_of(name) == short] or names
    if len(names) > 1:
        linked = set(_link_names(os.path.join(prefix, "bin", "python")))
        names = [name for name in names if name in linked] or names
    if len(names) > 1:
        refuse_environment(
            f"{prefix} has several Pythons: {', '.join(names)}",
            f"name one with --root {os.path.join(lib, names[-1], 'site-packages')}",
        )
    other = os.path.join(prefix, "lib64", names[0], "site-packages")
    return _existing([os.path.join(lib, names[0], "site-packages"), other])


def _version_of(folder: str) -> str:
    """``3.13`` of ``python3.13``, ``python3.13t`` (free-threaded) and ``pypy3.13``."""
    return folder.removeprefix("python").removeprefix("pypy").removesuffix("t")


def _link_names(path: str) -> Iterator[str]:
    """The base names that a chain of symlinks goes through."""
    for _ in range(20):
        try:
            target = os.readlink(path)
        except OSError:
            return
        path = os.path.join(os.path.dirname(path), target)
        yield os.path.basename(path)


def _from_conda(
    prefix: str, environ: Mapping[str, str], executable: str | None = None
) -> Environment:
    site_dirs = _site_dirs(prefix, "")
    lib = os.path.dirname(site_dirs[0])
    python = os.path.join(prefix, "bin", "python")
    if not os.path.lexists(python):
        python = executable or ""
    user: list[str] = []
    # A conda Python imports the user's packages before its own, unlike a venv's.
    base = environ.get("PYTHONUSERBASE") or (
        os.path.join(environ["HOME"], ".local") if environ.get("HOME") else ""
    )
    if base and not environ.get("PYTHONNOUSERSITE"):
        user = [os.path.join(base, "lib", os.path.basename(lib), "site-packages")]
    return Environment(
        site_dirs[0],
        tuple(_existing([*user, *site_dirs])),
        python or None,
        externally_managed=os.path.isfile(os.path.join(lib, "EXTERNALLY-MANAGED")),
    )
