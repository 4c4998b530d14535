"""Which environment, which distributions are in it, where their files are, and RECORD.

Owns every question that is asked of a Python installation by looking at it.  Reads the
file system and never changes it; never imports, and never runs code of, what is
installed.  An interpreter that is no virtual environment is the one thing that is run:
once, isolated and without its ``site`` start-up (``-I -S``), to say where its packages are.

It lies on the path of ``verify``, so it imports nothing that costs: no ``re``, ``json``,
``sysconfig`` or ``importlib.metadata`` unless a rare case needs them; and its small values
are named tuples, which are made in a fifth of the time that a dataclass takes.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from patchkit.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

DistributionKind = Literal["wheel", "editable", "tree"]

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

# From so many paths on, one pass over RECORD is cheaper than a search for each.
_MANY = 32
_DIGEST_BYTES = {"md5": 16, "sha1": 20, "sha224": 28, "sha256": 32, "sha384": 48, "sha512": 64}


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed project.  ``name`` is normalised (PEP 503).

    ``root`` is the absolute folder that paths like ``sglang/srt/x.py`` are relative to:
    the site-packages of a wheel, the source folder of an editable install (symlinks
    resolved), the folder itself of a tree.  ``dist_info`` is the absolute path of its
    ``.dist-info`` (or ``.egg-info``).  ``git_dir`` and ``work_tree`` are set when the
    root of an editable install or a tree lies in a git work tree; for a linked work tree
    or a submodule, ``git_dir`` is its own one.
    """

    name: str
    version: str
    root: str
    kind: DistributionKind
    dist_info: str | None
    git_dir: str | None
    work_tree: str | None


class _Entry(NamedTuple):
    """A ``.dist-info`` or ``.egg-info`` in one site directory."""

    name: str
    version: str
    file: str


class _Listing(NamedTuple):
    """The names in one site directory that matter here, grouped by normalised name."""

    directory: str
    entries: dict[str, list[_Entry]]
    pth: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the packages of one Python are.

    ``search`` holds every existing site directory in the order that Python imports from.
    ``site_packages`` is the first of them that is not a user's own (``~/.local``), so
    that it stays the same whoever looks and whether or not they have one.
    ``externally_managed`` is PEP 668's marker; a virtual environment never has it.

    An environment remembers the directory listings it has read: open a new one to see
    what was installed meanwhile.
    """

    site_packages: str
    search: tuple[str, ...]
    python: str | None
    externally_managed: bool
    is_root: bool
    _listings: dict[str, _Listing] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )


def normalise(name: str) -> str:
    """The normalised form of a project name (PEP 503).

    >>> normalise("FlashInfer__Python")
    'flashinfer-python'
    """
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


# --------------------------------------------------------------------- environments


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
    for variable in ("PATCHKIT_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"):
        value = environ.get(variable)
        if value:
            return _from_path(value, variable, environ)
    return _from_running(environ)


def _none(message: str, hint: str) -> NoReturn:
    raise Refused(message, code="no-environment", hint=hint)


_HINT = "name an interpreter or a virtual environment with --python, or site-packages with --root"


def _from_root(root: str) -> Environment:
    path = os.path.abspath(root)
    if not os.path.isdir(path):
        what = "is not a directory" if os.path.lexists(path) else "does not exist"
        _none(f"--root {root} {what}", "give the directory that holds the packages")
    return Environment(path, (path,), None, False, True)


def _from_path(given: str, source: str, environ: Mapping[str, str]) -> Environment:
    """What ``--python`` or a variable (``source``) names."""
    hint = _HINT
    if source in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        hint = f"activate the environment again, or unset {source}"
    elif os.sep not in given and not os.path.lexists(given):
        import shutil

        given = shutil.which(given, path=environ.get("PATH", os.defpath)) or given
    # Not resolved: the bin/python of a virtual environment is a symlink out of it.
    path = os.path.abspath(given)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        gone = "is a link to nothing" if os.path.lexists(path) else "does not exist"
        _none(f"{source} names {given}, which {gone}", hint)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _none(f"{source} names {given}, which cannot be looked at: {reason}", hint)
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
        _none(f"{source} names {given}, which is no virtual environment", hint)
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        _none(f"{source} names {given}, which is not an interpreter", hint)
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
        _none(f"{what} did not answer within {_ASK_TIMEOUT:.0f} seconds", _HINT)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _none(f"{what} cannot be run: {reason}", _HINT)
    fields = [os.fsdecode(part) for part in done.stdout.split(b"\0")]
    if done.returncode != 0 or fields[0] != "patchkit" or len(fields) < 4:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = f" (it said: {lines[0][:120]})" if lines else ""
        _none(f"{what} is not a Python 3 interpreter{said}", _HINT)
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
        _none(f"{what} has no site-packages directory", "name one with --root")
    marker = os.path.join(stdlib, "EXTERNALLY-MANAGED")
    return Environment((shared or search)[0], tuple(search), python, os.path.isfile(marker), False)


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
            _none(
                f"the virtual environment {prefix} uses the packages of a Python that"
                f" is no longer at {config.get('home', 'its place')}",
                "make the virtual environment again, or name site-packages with --root",
            )
        answer = _ask(base, f"{base} (home of {prefix})", environ)
        user = [] if environ.get("PYTHONNOUSERSITE") else [answer.user]
        site_dirs = _existing([*site_dirs, *user, *answer.sites])
    return Environment(site_dirs[0], tuple(site_dirs), python or None, False, False)


def _read_pyvenv_cfg(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError as error:
        _none(f"{path} cannot be read: {error.strerror}", _HINT)
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
        _none(f"{prefix} has no lib/python3.X/site-packages", "name site-packages with --root")
    if len(names) > 1:
        short = ".".join(version.split(".")[:2])
        if short:
            names = [name for name in names if _version_of(name) == short] or names
    if len(names) > 1:
        linked = set(_link_names(os.path.join(prefix, "bin", "python")))
        names = [name for name in names if name in linked] or names
    if len(names) > 1:
        _none(
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
        os.path.isfile(os.path.join(lib, "EXTERNALLY-MANAGED")),
        False,
    )


# -------------------------------------------------------------------- distributions


def find_distribution(env: Environment, name: str) -> Distribution | None:
    """The installed project of that name, from the first site directory that has it.

    Raises Refused with the code ``ambiguous-distribution`` when one directory holds two
    of it (two ``.dist-info``), and ``editable-root`` when it is an editable install whose
    source folder cannot be told.
    """
    wanted = normalise(name)
    for directory in env.search:
        listing = _listing(env, directory)
        entry = _only(listing, wanted)
        if entry is not None:
            return _distribution(listing, entry)
    return None


def list_distributions(env: Environment) -> list[Distribution]:
    """Every installed project, by name; of one name, what the first site directory has.

    Where :func:`find_distribution` would refuse, this does not: both of an ambiguous pair
    are listed, and an editable install whose source folder cannot be told has the root ``""``.
    """
    out: list[Distribution] = []
    seen: set[str] = set()
    for directory in env.search:
        listing = _listing(env, directory)
        for name in sorted(listing.entries.keys() - seen):
            installed = _installed(listing, name)
            out.extend(_rootless_too(listing, entry) for entry in installed)
            if installed:
                seen.add(name)
    out.sort(key=lambda dist: dist.name)
    return out


def _rootless_too(listing: _Listing, entry: _Entry) -> Distribution:
    try:
        return _distribution(listing, entry)
    except Refused:
        info = os.path.join(listing.directory, entry.file)
        return Distribution(entry.name, entry.version, "", "editable", info, None, None)


def tree_distribution(env: Environment, name: str = "") -> Distribution:
    """The site directory itself as one plain tree, with its git work tree if it is in one.

    A folder that holds a ``.dist-info`` was filled by an installer: git has no say in it.
    """
    root = os.path.realpath(env.site_packages)
    git_dir, work_tree = None, None
    listing = _listing(env, env.site_packages)
    entries = (entry for group in listing.entries.values() for entry in group)
    if not any(entry.file.endswith(".dist-info") for entry in entries):
        git_dir, work_tree = find_git(root)
    return Distribution(normalise(name), "", root, "tree", None, git_dir, work_tree)


def owner(env: Environment, path: str) -> Distribution | None:
    """The distribution whose RECORD lists ``path``, or whose source folder holds it.

    Reads each RECORD once and never parses it.  Site directories are asked in order; in
    each, RECORDs come before the source folders of editable installs.  None when nobody
    has it.  Raises Refused with the code ``ambiguous-owner`` when two have it and their
    rows differ: two projects that install the same file overwrite each other.
    """
    for directory in env.search:
        listing = _listing(env, directory)
        entries = [entry for name in listing.entries for entry in _installed(listing, name)]
        owners: list[tuple[_Entry, RecordRow]] = []
        for entry in entries:
            record = Record.load(os.path.join(directory, entry.file))
            row = record.rows((path,)).get(path) if record is not None else None
            if row is not None:
                owners.append((entry, row))
        owners.sort(key=lambda pair: pair[0].name)
        digests = {row.digest_hex for _, row in owners}
        if len(owners) > 1 and (len(digests) > 1 or None in digests):
            _ambiguous_owner(path, [entry.file for entry, _ in owners])
        if owners:
            return _distribution(listing, owners[0][0])
        holders = [dist for dist in _editables(listing, entries) if _holds(dist, path)]
        if len({dist.root for dist in holders}) > 1:
            _ambiguous_owner(path, [dist.name for dist in holders])
        if holders:
            return holders[0]
    return None


def _ambiguous_owner(path: str, names: list[str]) -> NoReturn:
    raise Refused(
        f"{path} belongs to more than one distribution: {', '.join(names)}",
        code="ambiguous-owner",
        file=path,
        hint="uninstall those that are not wanted, then install the other one again",
    )


def _editables(listing: _Listing, entries: list[_Entry]) -> Iterator[Distribution]:
    for entry in sorted(entries, key=lambda entry: entry.name):
        dist = _rootless_too(listing, entry)
        if dist.kind == "editable" and dist.root:
            yield dist


def _holds(dist: Distribution, path: str) -> bool:
    return os.path.lexists(os.path.join(dist.root, path))


def _listing(env: Environment, directory: str) -> _Listing:
    listing = env._listings.get(directory)
    if listing is None:
        listing = env._listings[directory] = _read_listing(directory)
    return listing


def _read_listing(directory: str) -> _Listing:
    try:
        names = os.listdir(directory)
    except OSError as error:
        _none(f"{directory} cannot be read: {error.strerror}", _HINT)
    entries: dict[str, list[_Entry]] = {}
    pth = []
    for file in names:
        if file.endswith(".pth"):
            pth.append(file)
        elif file.endswith((".dist-info", ".egg-info")):
            if file[0] == "~":  # what an interrupted pip leaves behind
                continue
            name, version = _name_and_version(directory, file)
            entries.setdefault(name, []).append(_Entry(name, version, file))
    pth.sort()
    return _Listing(directory, entries, tuple(pth))


def _name_and_version(directory: str, file: str) -> tuple[str, str]:
    """From the name of the folder where it is well formed, else from the metadata in it."""
    stem = file.rpartition(".")[0]
    name, dash, version = stem.partition("-")
    if file.endswith(".egg-info"):  # NAME-VERSION-pyX.Y.egg-info
        version = version.partition("-py")[0]
    # A wheel's file name escapes "-" as "_" in each part; an underscore in the version is
    # such an escape, or that of a local version written by an older tool.
    if dash and version[:1].isdigit() and "-" not in version and "_" not in version:
        return normalise(name), version
    found = _read_metadata(os.path.join(directory, file))
    return normalise(found.get("name") or name), found.get("version") or version


def _metadata_file(info: str) -> str:
    if info.endswith(".dist-info"):
        return os.path.join(info, "METADATA")
    return os.path.join(info, "PKG-INFO") if os.path.isdir(info) else info


def _read_metadata(info: str) -> dict[str, str]:
    """``name`` and ``version`` of a metadata file's header; empty where unreadable."""
    found: dict[str, str] = {}
    try:
        with open(_metadata_file(info), encoding="utf-8", errors="replace") as file:
            for line in file:
                key, colon, value = line.partition(":")
                if colon and key.lower() in ("name", "version"):
                    found.setdefault(key.lower(), value.strip())
                elif not line.strip():  # the header ends
                    break
    except OSError:
        pass
    return found


def _installed(listing: _Listing, name: str) -> list[_Entry]:
    """The entries of a name that count: those with metadata, dist-info before egg-info.

    An uninstall that could not remove a stray file leaves a folder without METADATA.
    """
    entries = [
        entry
        for entry in listing.entries.get(name, ())
        if os.path.isfile(_metadata_file(os.path.join(listing.directory, entry.file)))
    ]
    wheels = [entry for entry in entries if entry.file.endswith(".dist-info")]
    return sorted(wheels or entries, key=lambda entry: entry.file)


def _only(listing: _Listing, name: str) -> _Entry | None:
    if name not in listing.entries:
        return None
    entries = _installed(listing, name)
    if len(entries) > 1:
        files = ", ".join(entry.file for entry in entries)
        raise Refused(
            f"{name} is installed more than once in {listing.directory}: {files}",
            code="ambiguous-distribution",
            hint=f"uninstall {name} until none is left, then install it again",
        )
    return entries[0] if entries else None


def _distribution(listing: _Listing, entry: _Entry) -> Distribution:
    info = os.path.join(listing.directory, entry.file)
    sources = _editable_sources(listing, entry, info)
    if sources is None:
        return Distribution(entry.name, entry.version, listing.directory, "wheel", info, None, None)
    root = os.path.realpath(_editable_root(entry.name, sources))
    git_dir, work_tree = find_git(root)
    return Distribution(entry.name, entry.version, root, "editable", info, git_dir, work_tree)


# ----------------------------------------------------------------- editable installs


class _Sources(NamedTuple):
    """Where an editable install takes its modules from.

    ``folders`` are put on the path as they are; ``modules`` maps a module's dotted name
    to the folder or file that it is loaded from; ``told_by`` names what said so.
    """

    folders: tuple[str, ...]
    modules: dict[str, str]
    told_by: tuple[str, ...]


def _editable_sources(listing: _Listing, entry: _Entry, info: str) -> _Sources | None:
    """None for what was installed from a wheel.

    PEP 610's direct_url.json says whether it is editable; where there is none, a path
    file that is named after the project does, if it leads out of the site directory.
    """
    editable = _direct_url_editable(info)
    if editable is False:
        return None
    named = [file for file in listing.pth if _pth_project(file) == entry.name]
    if editable is None:
        if not named:
            return None
        sources = _read_sources(listing.directory, named)
        return sources if sources.folders or sources.modules else None
    record = Record.load(info)
    listed = record.paths() if record is not None else ()
    pth = [path for path in listed if path.endswith(".pth") and "/" not in path] or named
    sources = _read_sources(listing.directory, pth)
    if not sources.folders and not sources.modules:
        # flit install --symlink: the package itself is a link in site-packages.
        for top in sorted({path.partition("/")[0] for path in listed}):
            link = os.path.join(listing.directory, top)
            if os.path.islink(link):
                sources.modules[top.removesuffix(".py")] = os.path.realpath(link)
    return sources


def _direct_url_editable(info: str) -> bool | None:
    try:
        with open(os.path.join(info, "direct_url.json"), "rb") as file:
            raw = file.read()
    except OSError:
        return None
    if b"editable" not in raw:
        return False
    import json

    try:
        value = json.loads(raw)
        return value["dir_info"]["editable"] is True
    except (ValueError, KeyError, TypeError):
        return None


def _pth_project(file: str) -> str:
    """The project that an installer's path file is named after (normalised).

    ``__editable__.NAME-VERSION.pth`` (setuptools), ``_editable_impl_NAME.pth`` (hatchling,
    pdm), ``NAME.pth`` (flit, poetry, uv).
    """
    stem = file.removesuffix(".pth")
    if stem.startswith("__editable__."):
        stem = stem.removeprefix("__editable__.").rpartition("-")[0]
    return normalise(stem.removeprefix("_editable_impl_")).strip("-")


def _read_sources(directory: str, pth: Iterable[str]) -> _Sources:
    folders: list[str] = []
    modules: dict[str, str] = {}
    told_by: list[str] = []
    for file in pth:
        told_by.append(file)
        for line in _pth_lines(os.path.join(directory, file)):
            words = line.replace(";", " ").split()
            if words[0] == "import":
                if len(words) > 1 and words[1].lstrip("_").startswith("editable_"):
                    told_by.append(words[1] + ".py")
                    modules.update(_read_finder(os.path.join(directory, words[1] + ".py")))
                continue
            folder = os.path.abspath(os.path.join(directory, line))
            if folder == directory or folder.startswith(directory + os.sep):
                continue
            if os.path.basename(folder).startswith("__editable__."):
                modules.update(_read_link_tree(folder))
            else:
                folders.append(folder)
    return _Sources(tuple(dict.fromkeys(folders)), modules, tuple(told_by))


def _pth_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            lines = [line.strip() for line in file.read().splitlines()]
    except OSError:
        return []
    return [line for line in lines if line and not line.startswith("#")]


def _read_finder(path: str) -> dict[str, str]:
    """The modules that a generated finder maps, read from its syntax and never executed.

    Two dialects: setuptools writes ``MAPPING = {name: path, …}``, hatchling's and pdm's
    exact modes write ``F.map_module(name, path)``.
    """
    import ast

    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    out: dict[str, str] = {}
    for node in tree.body:
        mapping: ast.expr | None = None
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(name, ast.Name) and name.id == "MAPPING" for name in targets):
                mapping = node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "map_module":
                mapping = ast.Dict(list(call.args[:1]), call.args[1:2])
        try:
            value = ast.literal_eval(mapping) if mapping is not None else {}
        except (ValueError, TypeError, SyntaxError):
            continue
        if isinstance(value, dict):
            out.update((str(key), str(item)) for key, item in value.items())
    return out


def _read_link_tree(folder: str) -> dict[str, str]:
    """The top-level modules of setuptools' strict mode and where their links lead.

    The folder holds one link a file into the source folder.  The first link of a module
    that leads to the same path elsewhere tells; copies and hard links tell nothing.
    """
    out: dict[str, str] = {}
    try:
        tops = sorted(os.listdir(folder))
    except OSError:
        return out
    for top in tops:
        module = top.removesuffix(".py")
        for inside in _files_under(folder, top):
            try:
                target = os.readlink(os.path.join(folder, inside))
            except OSError:
                continue
            target = os.path.normpath(os.path.join(folder, os.path.dirname(inside), target))
            if target.endswith(os.sep + inside):
                out[module] = target[: len(target) - len(inside) + len(top)]
                break
            out.setdefault(module, target)
    return out


def _files_under(folder: str, top: str) -> Iterator[str]:
    path = os.path.join(folder, top)
    if not os.path.isdir(path):
        yield top
    for base, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            yield os.path.relpath(os.path.join(base, file), folder)


def _root_of_module(module: str, target: str) -> str | None:
    """The folder that ``module`` is importable from, or None when the names do not fit.

    >>> _root_of_module("a.b", "/x/src/a/b")
    '/x/src'
    """
    target = target.removesuffix("/__init__.py").removesuffix(".py").rstrip("/")
    tail = "/" + module.replace(".", "/")
    return target.removesuffix(tail) or "/" if target.endswith(tail) else None


def _no_root(message: str) -> NoReturn:
    raise Refused(
        message,
        code="editable-root",
        hint="name the folder that holds the package: patchkit --root DIR",
    )


def _editable_root(name: str, sources: _Sources) -> str:
    """The one source folder of an editable install; Refused where there is no such one."""
    modules = sources.modules
    # Top-level names decide.  Deeper ones may be mapped from elsewhere (FlashInfer maps
    # flashinfer.data.csrc to csrc); only a namespace package has nothing but those.
    top = {module: target for module, target in modules.items() if "." not in module}
    found: dict[str, str | None] = {
        module: _root_of_module(module, target) for module, target in (top or modules).items()
    }
    roots: set[str | None] = {*found.values(), *sources.folders}
    if len(roots) > 1:  # the one that holds the module of the project's own name
        own = {root for module, root in found.items() if normalise(module) == name}
        own |= {folder for folder in sources.folders if _has_module(folder, name)}
        roots = own if len(own) == 1 else roots
    told_by = " and ".join(sources.told_by) or "its RECORD"
    if len(roots) == 1:
        root = roots.pop()
        if root is not None:
            if os.path.isdir(root):
                return root
            _no_root(f"{name} is an editable install of {root}, which does not exist")
        _no_root(
            f"{name} is an editable install whose files are laid out otherwise than its"
            f" modules ({told_by})"
        )
    if roots:
        listed = ", ".join(sorted(str(root) for root in roots if root))
        _no_root(f"{name} is an editable install of several folders ({told_by}): {listed}")
    _no_root(f"{name} is an editable install, but {told_by} does not say of which folder")


def _has_module(folder: str, name: str) -> bool:
    try:
        files = os.listdir(folder)
    except OSError:
        return False
    return any(normalise(file.removesuffix(".py")) == name for file in files)


def find_git(folder: str) -> tuple[str, str] | tuple[None, None]:
    """The git directory and the work tree that an absolute folder lies in.

    Follows the ``gitdir:`` file of a linked work tree or a submodule.  A ``.git`` that is
    neither (git would refuse it) means none.
    """
    while True:
        dot_git = os.path.join(folder, ".git")
        try:
            mode = os.stat(dot_git).st_mode
        except OSError:
            mode = 0
        if mode and not stat.S_ISDIR(mode):
            dot_git = _read_gitfile(dot_git) if stat.S_ISREG(mode) else os.devnull
            if not os.path.lexists(os.path.join(dot_git, "HEAD")):
                return None, None
            return dot_git, folder
        if mode and os.path.lexists(os.path.join(dot_git, "HEAD")):
            return dot_git, folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None, None
        folder = parent


def _read_gitfile(path: str) -> str:
    """The git directory that it names; the null device, which holds nothing, for none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(8192)
    except OSError:
        return os.devnull
    if not raw.startswith(b"gitdir: "):
        return os.devnull
    target = os.fsdecode(raw[len(b"gitdir: ") :].rstrip(b"\r\n"))
    return os.path.normpath(os.path.join(os.path.dirname(path), target))


# --------------------------------------------------------------------------- RECORD


class RecordRow(NamedTuple):
    """One row of RECORD.  The digest is hexadecimal, and None where it is absent or wrong."""

    path: str
    algorithm: str | None
    digest_hex: str | None
    size: int | None


class Record:
    """The bytes of a RECORD file, read by searching them.

    Rows are ``path,algorithm=digest,size`` (PEP 376, PEP 627): CSV, UTF-8, the digest in
    URL-safe base 64 without padding.  Parsing SGLang's or FlashInfer's whole costs more
    than everything else that ``verify`` does; the wanted rows are found by their bytes.
    Where the text is such that searching could go wrong (a field over several lines, a
    lone carriage return, a quote in an odd place, ``./`` before a path), it is parsed
    after all.

    Of two rows for one path, the first counts.
    """

    __slots__ = ("_paths", "_table", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._paths: tuple[str, ...] | None = None
        self._table = None if _searchable(raw) else _parse(raw)

    @classmethod
    def load(cls, dist_info: str) -> Record | None:
        """The RECORD of a ``.dist-info``; None where it has none."""
        path = os.path.join(dist_info, "RECORD")
        try:
            with open(path, "rb") as file:
                return cls(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refused(
                f"{path} cannot be read: {error.strerror}",
                code="record-unreadable",
                hint="run as a user that may read it",
            ) from error

    def rows(self, paths: Collection[str]) -> dict[str, RecordRow]:
        """The rows of the paths that are listed, by path as given."""
        if self._table is None and len(paths) > _MANY:
            return self._rows_by_line(paths)
        out: dict[str, RecordRow] = {}
        for path in paths:
            row = self._search(path) if self._table is None else self._table.get(path)
            if row is not None:
                out[path] = row
        return out

    def _rows_by_line(self, paths: Collection[str]) -> dict[str, RecordRow]:
        """The same for many paths: one pass over the lines instead of a search for each."""
        lines: dict[str, bytes] = {}
        for line in self.raw.split(b"\n"):
            if line[:1] == b'"':
                name = _first_field(line)
                lines.setdefault(_decode(name), line[line.index(b'",', 1) + 2 :])
            else:
                raw_name, _, rest = line.partition(b",")
                lines.setdefault(_decode(raw_name), rest)
        out: dict[str, RecordRow] = {}
        for path in paths:
            found = lines.get(path)
            if found is not None and path:
                text = found.rstrip(b"\r").decode("utf-8", "surrogateescape")
                out[path] = _row(path, text.split(","))
        return out

    def paths(self) -> tuple[str, ...]:
        """Every file inside the site directory, in the order of RECORD.

        Leaves out what lies elsewhere (``../../../bin/sglang``, absolute paths).
        """
        if self._paths is None:
            if self._table is not None:
                names: Iterable[str] = self._table
            elif b'"' in self.raw:
                names = map(_decode, map(_first_field, self.raw.split(b"\n")))
            else:
                lines = self.raw.split(b"\n")
                names = map(_decode, [line.partition(b",")[0].rstrip(b"\r") for line in lines])
            inside = (name for name in dict.fromkeys(names) if name and not _outside(name))
            self._paths = tuple(inside)
        return self._paths

    def _search(self, path: str) -> RecordRow | None:
        plain = path.encode("utf-8", "surrogateescape")
        quoted = b'"' + plain.replace(b'"', b'""') + b'"'
        forms = [quoted] if _needs_quotes(plain) else [plain, quoted]
        raw = self.raw
        for form in forms:
            if raw.startswith(form + b","):
                start = len(form) + 1
            else:
                start = raw.find(b"\n" + form + b",")
                if start < 0:
                    continue
                start += len(form) + 2
            end = raw.find(b"\n", start)
            line = raw[start:] if end < 0 else raw[start:end]
            rest = line.rstrip(b"\r").decode("utf-8", "surrogateescape").split(",")
            return _row(path, rest)
        return None

    @staticmethod
    def add_rows(raw: bytes, rows: Collection[tuple[str, str, int]]) -> bytes:
        """RECORD with rows for added files: (path, SHA-256 in hexadecimal, size).

        They stand in the order of their paths, before the row of RECORD itself where that
        is the last one, else at the end, with the line ends that are there.  Paths that
        have a row already keep it: what is there is never changed.
        """
        have = Record(raw).rows([path for path, _, _ in rows])
        end = b"\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else b"\n"
        added = [
            _format(path, digest, size) for path, digest, size in sorted(rows) if path not in have
        ]
        if not added:
            return raw
        body = raw.rstrip(b"\r\n")
        tail = raw[len(body) :]
        head, newline, last = body.rpartition(b"\n")
        if _first_field(last).endswith(b".dist-info/RECORD"):
            before, after = head + newline, last + tail
            return before + b"".join(row + end for row in added) + after
        if body:
            body += end
        return body + end.join(added) + (tail if body else end)


def _searchable(raw: bytes) -> bool:
    """Whether each line is one row, quotes stand around whole first fields only, and no
    path begins with ``./``."""
    if b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n"):
        return False
    if raw.startswith((b"./", b'"./')) or b"\n./" in raw or b'\n"./' in raw:
        return False
    at = raw.find(b'"')
    while at >= 0:
        end = raw.find(b"\n", at)
        line = raw[raw.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(raw)]
        bare = line.replace(b'""', b"")
        close = bare.find(b'"', 1)
        if bare[:1] != b'"' or bare[close : close + 2] != b'",':
            return False
        if bare.find(b'"', close + 1) >= 0:
            return False
        at = raw.find(b'"', end) if end >= 0 else -1
    return True


def _parse(raw: bytes) -> dict[str, RecordRow]:
    import csv
    import io

    out: dict[str, RecordRow] = {}
    text = io.StringIO(raw.decode("utf-8", "surrogateescape"), newline="")
    reader = csv.reader(text)
    try:
        for fields in reader:
            if fields:
                path = _undotted(fields[0])
                out.setdefault(path, _row(path, fields[1:]))
    except csv.Error as error:
        raise Refused(
            f"RECORD line {reader.line_num} is no CSV: {error}",
            code="record-unreadable",
            hint="install the distribution again",
        ) from error
    return out


def _row(path: str, rest: list[str]) -> RecordRow:
    algorithm, equals, digest = (rest[0] if rest else "").partition("=")
    size = rest[1] if len(rest) > 1 else ""
    if not equals:
        algorithm = digest = ""
    number = int(size) if size.isascii() and size.isdigit() else None
    return RecordRow(path, algorithm or None, _digest_hex(algorithm, digest), number)


def _digest_hex(algorithm: str, digest: str) -> str | None:
    size = _DIGEST_BYTES.get(algorithm)
    if size is None:
        return None
    if len(digest) == 2 * size:  # flit install writes it in hexadecimal
        try:
            return bytes.fromhex(digest).hex()
        except ValueError:
            return None
    import binascii

    text = digest.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = binascii.a2b_base64(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return decoded.hex() if len(decoded) == size else None


def _format(path: str, digest_hex: str, size: int) -> bytes:
    import binascii

    name = path.encode("utf-8", "surrogateescape")
    if _needs_quotes(name):
        name = b'"' + name.replace(b'"', b'""') + b'"'
    digest = binascii.b2a_base64(bytes.fromhex(digest_hex), newline=False).rstrip(b"=")
    return b"%b,sha256=%b,%d" % (name, digest.translate(_URL_SAFE), size)


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _needs_quotes(name: bytes) -> bool:
    return b"," in name or b'"' in name or b"\n" in name or b"\r" in name


def _first_field(line: bytes) -> bytes:
    if line[:1] != b'"':
        return line.partition(b",")[0].rstrip(b"\r")
    end = line.find(b'"', 1)
    while end >= 0 and line[end + 1 : end + 2] == b'"':
        end = line.find(b'"', end + 2)
    return (line[1:end] if end >= 0 else line[1:]).replace(b'""', b'"')


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _undotted(name: str) -> str:
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _outside(name: str) -> bool:
    return name[0] == "/" or (".." in name and ".." in name.split("/"))
