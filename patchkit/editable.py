"""Editable installs: where the sources are that one points to; and git work trees.

Owns PEP 610's ``direct_url.json`` and the forms that build backends give to PEP 660:
``.pth`` files, finder modules (read as data, never run), trees of links.  Only reads.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .errors import Refused
from .fsio import MAX_METADATA, read_plain
from .names import normalise
from .record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .distributions import Entry, Listing


class _Sources(NamedTuple):
    """Where an editable install takes its modules from.

    ``folders`` are put on the path as they are; ``modules`` maps a module's dotted name
    to the folder or file that it is loaded from; ``told_by`` names what said so.
    """

    folders: tuple[str, ...]
    modules: dict[str, str]
    told_by: tuple[str, ...]


def editable_sources(listing: Listing, entry: Entry, info: str) -> _Sources | None:
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
        raw = read_plain(os.path.join(info, "direct_url.json"), MAX_METADATA)
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
        text = read_plain(path, MAX_METADATA).decode("utf-8-sig", "surrogateescape")
    except OSError:
        return []
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _read_finder(path: str) -> dict[str, str]:
    """The modules that a generated finder maps, read from its syntax and never executed.

    Two dialects: setuptools writes ``MAPPING = {name: path, …}``, hatchling's and pdm's
    exact modes write ``F.map_module(name, path)``.
    """
    import ast

    from .syntax import parse

    try:
        tree = parse(read_plain(path, MAX_METADATA))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    assert isinstance(tree, ast.Module)
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


def editable_root(name: str, sources: _Sources) -> str:
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
        raw = read_plain(path, 8192)
    except OSError:
        return os.devnull
    if not raw.startswith(b"gitdir: "):
        return os.devnull
    target = os.fsdecode(raw[len(b"gitdir: ") :].rstrip(b"\r\n"))
    return os.path.normpath(os.path.join(os.path.dirname(path), target))
