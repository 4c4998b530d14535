"""Header paths of a patch → paths of a distribution.

Owns the choice of one (strip, prefix) for each form of path in a patch, by matching
against the files that the distribution really has, and the rule for files that no wheel
holds.  Must not do I/O: it is given the paths.

A *form* is the way a path begins: its first part behind git's ``a/`` or ``b/`` (a patch of
``python/sglang/…`` and ``sglang/…`` mixes two).  The candidates of a form are every strip
level with one of a few prefixes (none, the package, the package's data folder); a free
search by suffix would match files of unrelated projects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .errors import Refused
from .model import FilePatch

# What upstream repositories hold beside the package and no wheel does.
_OUTSIDE = frozenset(
    [
        "test",
        "tests",
        "doc",
        "docs",
        "benchmark",
        "benchmarks",
        "bench",
        "example",
        "examples",
        "script",
        "scripts",
        "docker",
        "assets",
        "tools",
        "ci",
        ".github",
        ".gitlab",
        ".devcontainer",
        ".circleci",
        "3rdparty",
        "third_party",
        "sgl-kernel",
        "sgl-router",
        "sgl-model-gateway",
        "sgl-pdlb",
        "rust",
        "proto",
        "csrc",
        "include",
        "cmake",
        "requirements",
        "licenses",
        "profiler",
        "cuda_archive",
        "build_tools",
    ]
)
_OUTSIDE_NAMES = frozenset(
    [
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "MANIFEST.in",
        "CMakeLists.txt",
        "Makefile",
        "Dockerfile",
        "LICENSE",
        "NOTICE",
        "CODEOWNERS",
        "version.txt",
        "requirements.txt",
        "tox.ini",
        "conftest.py",
        "custom_backend.py",
        "build_backend.py",
        "build_utils.py",
    ]
)
_OUTSIDE_ENDS = (".md", ".rst", ".yml", ".yaml", ".lock", ".gitignore", ".cfg", ".ini")


class Mapped(NamedTuple):
    """A file patch with its paths inside the distribution (None: absent on that side)."""

    patch: FilePatch
    old: str | None
    new: str | None

    @property
    def path(self) -> str:
        """The path it is known by: the new one, or the old one of a deleted file."""
        path = self.new if self.new is not None else self.old
        assert path is not None
        return path


class Form(NamedTuple):
    """How the paths that begin with ``example``'s first part were mapped."""

    example: str
    strip: int
    prefix: str


class Mapping(NamedTuple):
    """The outcome for one patch: mapped files, those left out, and the forms used."""

    files: tuple[Mapped, ...]
    left_out: tuple[str, ...]
    forms: tuple[Form, ...]


class Known:
    """The paths that a distribution holds, as the patches before left it."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = set(paths)
        self.packages = sorted({path.split("/", 1)[0] for path in self.paths if "/" in path})
        self._folders: set[str] | None = None

    @property
    def folders(self) -> set[str]:
        """Every folder that holds a file; worked out when a new file first asks for it."""
        if self._folders is None:
            self._folders = set()
            for path in self.paths:
                self._note(path, self._folders)
        return self._folders

    def has(self, path: str) -> bool:
        """Whether the distribution holds this file."""
        return path in self.paths

    def has_folder(self, folder: str) -> bool:
        """Whether some file lies below this folder."""
        return folder in self.folders

    def named(self, names: set[str]) -> list[str]:
        """The paths whose last part is one of ``names``."""
        return [path for path in self.paths if path.rpartition("/")[2] in names]

    def add(self, path: str) -> None:
        """A patch makes this file."""
        self.paths.add(path)
        if self._folders is not None:
            self._note(path, self._folders)

    def discard(self, path: str) -> None:
        """A patch removes this file."""
        self.paths.discard(path)

    @staticmethod
    def _note(path: str, folders: set[str]) -> None:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]


def check_path(path: str) -> str:
    """The path itself, if it cannot lead out of the root; else :class:`Refused`."""
    parts = path.split("/")
    if (
        "\0" in path
        or any(part in ("", ".", "..") for part in parts)
        or (len(parts[0]) == 2 and parts[0][1] == ":")
        or parts[0].startswith("~")
    ):
        raise Refused(
            f"the path {path!r} could lead outside the distribution",
            code="bad-path",
            hint="make the patch with paths relative to the distribution, without '..'",
        )
    if path.endswith((".pyc", ".pyo")) or "__pycache__" in parts:
        raise Refused(
            f"the path {path!r} is byte-code, which comes and goes with its source",
            code="bad-path",
            hint="leave it out of the patch",
        )
    for part in parts:
        if part.lower() in (".git", ".patchkit") or part.lower().endswith(".dist-info"):
            raise Refused(
                f"the path {path!r} is not a package's own: {part} is never patched",
                code="bad-path",
                hint="leave it out of the patch",
            )
    return path


def strip_path(path: str, count: int) -> str | None:
    """The path without its first ``count`` parts; None where too little is left.

    Runs of slashes count as one, as git and GNU patch do; a leading slash counts as a
    part of its own (POSIX patch, ``-p``).
    """
    parts = path.split("/")
    kept = [parts[0]] + [part for part in parts[1:] if part]
    rest = kept[count:]
    return "/".join(rest) if rest and rest[0] else None


def reaches(part: FilePatch, file: str) -> bool:
    """Whether a header path may be the file: some strip level leads to it, or it is given
    from the package or its data folder on."""
    bare = (part.old_path or "a/")[:2], (part.new_path or "b/")[:2]
    for path in (part.old_path, part.new_path):
        if path is not None:
            levels = range(path.count("/") + 1)
            if any(strip_path(path, level) == file for level in levels):
                return True
            if file.endswith("/" + (path[2:] if bare == ("a/", "b/") else path)):
                return True
    return False


def map_patch(files: Sequence[FilePatch], known: Known) -> Mapping:
    """Map every file of a patch onto the distribution's paths.

    Raises :class:`Refused` with the candidates where more than one mapping fits, or none.
    """
    groups: dict[str, list[FilePatch]] = defaultdict(list)
    files = [_by_known_name(file, known) for file in files]
    for file in files:
        groups[_form(file)].append(file)
    chosen: dict[str, tuple[int, str]] = {}
    outside: list[str] = []
    for form, members in groups.items():
        choice = _choose(members, known)
        if choice is not None:
            chosen[form] = choice
    if any(not prefix for _, prefix in chosen.values()):
        # Beside paths of the whole repository, "test/new.py" is the repository's own.
        for form, (_, prefix) in list(chosen.items()):
            if prefix and all(f.change == "add" and _left_out(f) for f in groups[form]):
                del chosen[form]
    mapped: list[Mapped] = []
    for file in files:
        choice = chosen.get(_form(file))
        if choice is None and _left_out(file):
            outside.append(file.path)
            continue
        if choice is None:
            raise Refused(
                f"no file of the distribution fits the path {file.path!r}",
                code="path-not-found",
                file=file.path,
                line=file.line,
                hint="is it the right environment (--python)? Else give the strip level: strip = N"
                " in the manifest, or --strip N",
            )
        level, prefix = choice
        old, new = (_place(path, level, prefix) for path in _both_paths(file))
        target = old if file.change != "add" else new
        inside = target is not None and (
            target.split("/", 1)[0] in known.packages or _is_known(target, known, target == old)
        )
        if not inside and _left_out(file):
            outside.append(file.path)
            continue
        mapped.append(_checked(file, old, new))
    if not mapped:
        raise Refused(
            "no file of the patch is one that the distribution holds",
            code="path-not-found",
            hint="all of them are tests, docs or build files of the upstream repository",
            detail=tuple(f"left out: {path}" for path in outside),
            data={"left_out": outside},
        )
    forms = tuple(Form(form, level, prefix) for form, (level, prefix) in chosen.items())
    return Mapping(tuple(mapped), tuple(outside), forms)


def map_stripped(files: Sequence[FilePatch], strip: int) -> Mapping:
    """Drop ``strip`` parts of every path; raises :class:`Refused` where nothing is left."""
    mapped = []
    for file in files:
        old, new = (_place(path, strip, "") for path in (file.old_path, file.new_path))
        if _is_plain(file):
            # One file under two names: the one that is left, or the better.
            left = [path for path in (new, old) if path is not None]
            old = new = min(left, key=_name_rank, default=None)
        if (file.old_path is not None and old is None) or (
            file.new_path is not None and new is None
        ):
            raise Refused(
                f"nothing is left of the path {file.path!r} at strip level {strip}",
                code="path-not-found",
                hint="a smaller strip level, or none: then it is found by itself",
                file=file.path,
                line=file.line,
            )
        mapped.append(_checked(file, old, new))
    return Mapping(tuple(mapped), (), (Form("", strip, ""),))


def _checked(file: FilePatch, old: str | None, new: str | None) -> Mapped:
    try:
        for path in (old, new):
            if path is not None:
                check_path(path)
    except Refused as error:
        raise error.at(file=file.path, line=file.line) from None
    if file.change == "modify" and old != new:
        raise Refused(
            f"two names for one file, {old} and {new}, and no rename",
            code="two-names",
            file=file.path,
            line=file.line,
            hint="another strip level may make them one: strip = N in the manifest, or --strip N",
        )
    return Mapped(file, old, new)


def _is_plain(file: FilePatch) -> bool:
    return file.change == "modify" and not file.git


def _by_known_name(file: FilePatch, known: Known) -> FilePatch:
    """A file under two names (``x.py.orig`` and a path): if no file is called as the better
    one says, and some are as the other, it goes by that one."""
    if not _is_plain(file) or file.old_path is None or file.new_path is None:
        return file
    better = _header_path(file)
    other = file.old_path if better == file.new_path else file.new_path
    names = better.rpartition("/")[2], other.rpartition("/")[2]
    if names[0] == names[1] or known.named({names[0]}) or not known.named({names[1]}):
        return file
    return file._replace(old_path=other, new_path=other)


def _name_rank(path: str) -> tuple[int, int, int]:
    """GNU patch's order of names (pch.c, best_name): fewest parts, shortest last part,
    shortest; so ``x`` of ``x.orig`` and ``x``."""
    parts = path.split("/")
    return len(parts), len(parts[-1]), len(path)


def _header_path(file: FilePatch) -> str:
    """The one header path that says where the file is now, or will be."""
    if _is_plain(file) and file.old_path is not None and file.new_path is not None:
        return min((file.new_path, file.old_path), key=_name_rank)
    path = file.old_path if file.old_path is not None else file.new_path
    assert path is not None
    return path


def _both_paths(file: FilePatch) -> tuple[str | None, str | None]:
    if _is_plain(file):
        return _header_path(file), _header_path(file)
    return file.old_path, file.new_path


def _place(path: str | None, level: int, prefix: str) -> str | None:
    if path is None:
        return None
    rest = strip_path(path, level)
    return None if rest is None else prefix + rest


def _form(file: FilePatch) -> str:
    parts = _parts(_header_path(file))
    return parts[0] if len(parts) > 1 else "."


def _parts(path: str) -> list[str]:
    """The parts of a path, without git's prefix (``diff.mnemonicPrefix`` has the rarer ones)."""
    parts = [part for part in path.split("/") if part]
    return parts[1:] if len(parts) > 1 and parts[0] in ("a", "b", "i", "w", "c", "o") else parts


_Outcomes = dict[tuple[str | None, ...], tuple[int, int, tuple[int, str]]]


def _choose(members: Sequence[FilePatch], known: Known) -> tuple[int, str] | None:
    """The (strip, prefix) of one form, or None where no file of it is known.

    The best candidate hits the most files and keeps the longest part of each path; two
    that are best in one of both and disagree about a file are ambiguous.
    """
    old = [f for f in members if f.change != "add"]
    sample = old or list(members)
    paths = [_header_path(f) for f in sample]
    prefixes = ["", *(f"{name}/" for name in known.packages)]
    prefixes += [f"{name}/data/" for name in known.packages]
    deepest = max(_depth(file) for file in sample)
    outcomes: _Outcomes = {}
    for level in range(deepest):
        for prefix in prefixes:
            places = tuple(_place(path, level, prefix) for path in paths)
            hits = sum(
                1
                for place in places
                # A new file says where it belongs by a folder of its own path.
                if _is_known(place, known, bool(old))
                and (old or (place is not None and place.count("/") > prefix.count("/")))
            )
            if hits and outcomes.get(places, (0,))[0] < hits:
                outcomes[places] = (hits, deepest - level, (level, prefix))
        if len(outcomes) == 1 and next(iter(outcomes.values()))[0] == len(sample):
            break  # keeps more of the path than any later one, and hits all
    if not outcomes:
        outcomes = _by_name(sample, known)
    ranked = list(outcomes.values())
    best = [
        item
        for item in ranked
        if not any(o[0] >= item[0] and o[1] >= item[1] and o[:2] != item[:2] for o in ranked)
    ]
    if len(best) > 1:
        names = [str(_place(paths[0], *item[2])) for item in best]
        raise Refused(
            f"the path {sample[0].path!r} fits {len(best)} files: {', '.join(names)}",
            code="path-ambiguous",
            file=sample[0].path,
            line=sample[0].line,
            hint="give the strip level: strip = N in the manifest, or --strip N",
            data={"candidates": names},
        )
    return best[0][2] if best else None


def _is_known(place: str | None, known: Known, exists: bool) -> bool:
    if place is None:
        return False
    return known.has(place) if exists else known.has_folder(place.rpartition("/")[0])


def _by_name(sample: Sequence[FilePatch], known: Known) -> _Outcomes:
    """Bare file names: every folder that holds a file of that name is a candidate."""
    outcomes: _Outcomes = {}
    bare = [_bare(_header_path(file)) for file in sample]
    names = [name for name in bare if name is not None]
    if len(names) < len(bare):
        return outcomes
    found = set(known.named(set(names)))
    for folder in sorted({path.rpartition("/")[0] for path in found}):
        prefix = f"{folder}/"
        places = tuple(prefix + name for name in names)
        hits = sum(1 for place in places if place in found)
        outcomes[places] = (hits, 1, (_depth(sample[0]) - 1, prefix))
    return outcomes


def _bare(path: str) -> str | None:
    """The name of a file of which the path says no folder."""
    parts = _parts(path)
    if len(parts) == 2 and parts[0] in ("old", "new"):
        parts = parts[1:]
    return parts[0] if len(parts) == 1 else None


def _depth(file: FilePatch) -> int:
    path = _header_path(file)
    return len([part for part in path.split("/") if part]) + path.startswith("/")


def outside_package(path: str) -> bool:
    """Whether a path, relative to where the packages lie, is one that upstream's repository
    holds and no wheel does."""
    return _is_outside([part for part in path.split("/") if part])


def _left_out(file: FilePatch) -> bool:
    return _is_outside(_parts(file.path))


def _is_outside(parts: list[str]) -> bool:
    if len(parts) > 1 and parts[0] in ("python", "src"):
        parts = parts[1:]
    name = parts[-1] if parts else ""
    if len(parts) <= 1:
        return name in _OUTSIDE_NAMES or name.endswith(_OUTSIDE_ENDS) or name.startswith(".")
    return parts[0] in _OUTSIDE or parts[0].startswith(".")
