"""``edit`` and ``refresh``: a series as commits of a scratch repository, and back.

The repository lies below the bundle directory (``.edit/BUNDLE``), holds the pristine files of one
release, and one commit a patch.  It is the author's until ``edit --discard``; what was noted
when it was made says which commit was which patch.  A commit that leaves what its patch makes,
and is called the same, gives that patch back byte for byte.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from patchkit.bundles import read_manifest
from patchkit.errors import PatchkitError, Refused
from patchkit.fsio import digest
from patchkit.manifest import select_variant
from patchkit.model import Assertion, FileState, Target, Variant
from patchkit.releases.sources import Settings
from patchkit.session import Options, Report
from patchkit.stack import Stack, States
from patchkit.writing.headers import Head, slug, split_head
from patchkit.writing.who import today

from . import place, scratch
from .ordering import report_of
from .scratch import Scratch
from .series import Item, Work, opened_work, rewritten

_FOLDER = ".edit"
_NOTE = "patchkit.json"


class Commit(NamedTuple):
    """One commit of the author's: its parent, its message, and the files that it changes."""

    name: str
    parent: str
    message: str
    author: str
    before: States
    after: States


def edit(
    options: Options,
    settings: Settings,
    name: str,
    *,
    release: str | None = None,
    files: Sequence[str] = (),
    discard: bool = False,
    opener: Callable[[str], Sequence[str]] | None = None,
    dry_run: bool = False,
) -> Report:
    """Lay the series out as commits, or go on with what is laid out already.

    ``files`` are further files of the release to have there (shell patterns).  ``opener`` gives
    the command to run in the folder.  Raises :class:`Refused` where the bundle changed since.
    """
    folder = place.target_folder(options)
    path = os.path.join(folder, _FOLDER, name)
    if discard:
        return _discard(folder, name, path, dry_run=dry_run)
    if os.path.isdir(path):
        note = _current(folder, name, _read_note(path, name))
    elif dry_run:
        note = {}
    else:
        with opened_work(options, settings, name, release, f"patchkit edit {name}") as work:
            note = _lay_out(work, path, files)
    status = 0
    if opener is not None and not dry_run:
        try:
            status = subprocess.call([*opener(path)], cwd=path)
        except OSError as error:
            raise Refused(
                f"{opener(path)[0]} cannot be started: {error.strerror}",
                code="no-editor",
                hint="set EDITOR, or give --no-shell and open the folder yourself",
            ) from None
    report = Report(
        "edit", {"bundle": name, "folder": folder, "work_tree": path, **_shown(note)}, changed=True
    )
    if status:
        report.notes.append(f"the editor ended with {status}")
    report.notes.append(
        f"each commit is a patch; when they are as you want them: patchkit refresh {name}"
    )
    return report


def refresh(
    options: Options,
    settings: Settings,
    name: str,
    *,
    with_asserts: bool = True,
    confirm: Callable[[list[Assertion]], bool] | None = None,
    dry_run: bool = False,
) -> Report:
    """Write the commits back as the series of the variant that they were made of."""
    folder = place.target_folder(options)
    path = os.path.join(folder, _FOLDER, name)
    if not os.path.isdir(path):
        raise Refused(
            f"{name} is not being edited",
            code="not-edited",
            bundle=name,
            hint=f"patchkit edit {name} lays its patches out as commits",
        )
    note = _current(folder, name, _read_note(path, name))
    tree = Scratch(path)
    commits = _commits(tree, name, note)
    release = f"{note['distribution']}=={note['version']}"
    try:
        opened = opened_work(options, settings, name, release, f"patchkit refresh {name}")
        with opened as work:
            items, states, changed = _items(options, work, tree, commits)
            empty = [one.message.partition("\n")[0] for one in commits if not one.after]
            made = rewritten(
                work, items, settings, suggest_for=changed if with_asserts else (), confirm=confirm
            )
    except PatchkitError as error:
        raise error.at(bundle=name) from None
    names = next(v.patches for t in made.bundle.targets for v in t.variants if _is_of(t, v, note))
    written = _noted(made.manifest, [Item(one, made.patch(one)) for one in names])
    written["head"] = commits[-1].name if commits else note["base"]
    if not dry_run:  # first what will be there, so that a kill between the two is no puzzle
        _write_note(path, {**note, "coming": written})
    report = report_of("refresh", folder, made, dry_run=dry_run)
    report.notes += [f"left out: {subject}, a commit that changes nothing" for subject in empty]
    report.data["series"] = [
        {"path": item.path, "state": state} for item, state in zip(items, states, strict=True)
    ]
    if not dry_run:
        _write_note(path, {**note, **written})
    return report


# -- laying out -------------------------------------------------------------------------


def _lay_out(work: Work, path: str, files: Sequence[str]) -> dict[str, Any]:
    _, touched = work.put_on(work.items)
    wanted = set(touched)
    if files:
        wanted |= {
            one for one in work.base.paths() if any(fnmatch.fnmatchcase(one, g) for g in files)
        }
    scratch.note(os.path.join(os.path.dirname(path), ".gitignore"), "*\n")
    aside = f"{path}.new"
    if os.path.isdir(aside):  # of one that was killed
        scratch.remove(aside)
    tree = Scratch.make(scratch.folder(aside))
    label = f"{work.base.distribution} {work.base.version}"
    base = tree.commit(
        {one: work.base.state(one) for one in sorted(wanted)}, f"{label}\n\n{work.base.origin}\n"
    )
    top, on = base, Stack(work.base)
    for item in work.items:
        after = on.apply(item.path, item.data, work.strip).after
        head = Head.of(item.data, item.path)
        top = tree.commit(
            after, head.message(), author=_person(head.get("Author")), date=_date(head)
        )
    note = {
        "distribution": work.base.distribution,
        "version": work.base.version,
        "base": base,
        "head": top,
        **_noted(read_manifest(work.folder, work.bundle.name), work.items),
    }
    _write_note(aside, note)
    scratch.move(aside, path)
    return note


def _is_of(target: Target, variant: Variant, note: Mapping[str, Any]) -> bool:
    return target.distribution == note["distribution"] and variant is select_variant(
        target, note["version"]
    )


def _noted(manifest: bytes, items: Sequence[Item]) -> dict[str, Any]:
    return {
        "manifest": digest(manifest),
        "patches": [[item.path, digest(item.data)] for item in items],
    }


def _write_note(path: str, note: Mapping[str, Any]) -> None:
    scratch.note(os.path.join(path, ".git", _NOTE), json.dumps(note, indent=1) + "\n")


def _read_note(path: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(path, ".git", _NOTE), encoding="utf-8") as file:
            note: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        raise Refused(
            f"{path} is no work tree of patchkit's",
            code="not-edited",
            bundle=name,
            hint="move it away, then run the same command again",
        ) from None
    return note


def _current(folder: str, name: str, note: dict[str, Any]) -> dict[str, Any]:
    """The note, with what a refresh that was killed had written already.

    Raises :class:`Refused` where the bundle is another one than was laid out.
    """
    coming = note.pop("coming", None)
    if coming is not None and digest(read_manifest(folder, name)) == coming["manifest"]:
        found = place.read(folder, [f"patches/{path}" for path, _ in coming["patches"]])
        now = {path: None if data is None else digest(data) for path, data in found.items()}
        if now == {f"patches/{path}": sha256 for path, sha256 in coming["patches"]}:
            return {**note, **coming}
    _must_be_the_same(folder, name, note)
    return note


def _must_be_the_same(folder: str, name: str, note: Mapping[str, Any]) -> None:
    if digest(read_manifest(folder, name)) != note["manifest"]:
        raise Refused(
            f"manifests/{name}.toml was changed since its patches were laid out",
            code="changed-meanwhile",
            bundle=name,
            hint=f"take the change back; or drop the commits: patchkit edit --discard {name}",
        )
    for path, sha256 in note["patches"]:
        with_data = place.read(folder, [f"patches/{path}"])[f"patches/{path}"]
        if with_data is None or digest(with_data) != sha256:
            raise Refused(
                f"{path} was changed since it was laid out",
                code="changed-meanwhile",
                bundle=name,
                patch=path,
                hint=f"take the change back; or drop the commits: patchkit edit --discard {name}",
            )


def _discard(folder: str, name: str, path: str, *, dry_run: bool) -> Report:
    there = os.path.isdir(path)
    commits: list[str] = []
    changes: list[str] = []
    if there:
        commits, changes = _unrefreshed(Scratch(path), _read_note(path, name))
        if not dry_run:
            scratch.remove(path)
            scratch.remove_if_bare(os.path.dirname(path))
    report = Report(
        "edit",
        {
            "bundle": name,
            "folder": folder,
            "work_tree": path if there and dry_run else None,
            "discarded": {"commits": commits, "changes": changes},
        },
        changed=there and not dry_run,
    )
    gone = "would go" if dry_run else "is gone"
    report.notes.append(f"the work tree of {name} {gone}" if there else f"{name} has no work tree")
    report.notes += [f"with it a commit that was not refreshed: {one}" for one in commits]
    report.notes += [f"with it what was in no commit: {one}" for one in changes]
    return report


def _unrefreshed(tree: Scratch, note: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What only the work tree has: the commits since it was laid out or refreshed, as git's
    one-line log, and the paths that no commit has.  Nothing of a tree that git cannot read."""
    try:
        known = note.get("head", note["base"])
        commits = tree.run("log", "--oneline", "--no-decorate", f"{known}..HEAD").splitlines()
        status = tree.run("status", "--porcelain", "--untracked-files=normal").splitlines()
    except PatchkitError:
        return [], []
    return commits, [line[3:] for line in status]


def _shown(note: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "release": {key: note[key] for key in ("distribution", "version") if key in note},
        "patches": [path for path, _ in note.get("patches", [])],
    }


def _person(author: str | None) -> str | None:
    return author if author and "<" in author and "\n" not in author else None


def _date(head: Head) -> str | None:
    text = head.get("Last-Update") or ""
    return f"{text}T12:00:00+0000" if len(text) == 10 and text[4] == "-" else None


# -- back -------------------------------------------------------------------------------


def _commits(tree: Scratch, name: str, note: Mapping[str, Any]) -> list[Commit]:
    """The author's commits, oldest first.  Raises :class:`Refused` where the work tree is not
    clean, or the commits are no line that begins at the release."""
    git_dir = os.path.join(tree.path, ".git")
    busy = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD")
    if any(os.path.lexists(os.path.join(git_dir, one)) for one in busy):
        raise Refused(
            "a rebase or a merge is under way in the work tree",
            code="work-tree-busy",
            bundle=name,
            hint=f"finish it: git -C {tree.path} status",
        )
    left = tree.run("status", "--porcelain", "--untracked-files=normal").splitlines()
    if left:
        raise Refused(
            f"there are changes in {tree.path} that are in no commit",
            code="not-committed",
            bundle=name,
            hint=f"git -C {tree.path} add -A, then commit --amend, or a commit of its own",
            detail=tuple(left[:10]),
        )
    lines = tree.run("rev-list", "--reverse", "--parents", f"{note['base']}..HEAD").split("\n")
    rows = [line.split() for line in lines if line]
    expected = note["base"]
    commits = []
    for row in rows:
        if row[1:] != [expected]:
            raise Refused(
                "the commits are no straight line from the release on",
                code="not-a-series",
                bundle=name,
                hint=f"git -C {tree.path} rebase -i {note['base']}",
            )
        expected = row[0]
        before, after = tree.changed(row[1], row[0])
        text = tree.run("log", "-1", "--format=%an <%ae>%n%B", row[0])
        author, _, message = text.partition("\n")
        commits.append(Commit(row[0], row[1], message.strip(), author, before, after))
    head = tree.run("rev-parse", "HEAD").strip()
    if expected != head:
        raise Refused(
            "the commits do not begin at the release",
            code="not-a-series",
            bundle=name,
            hint=f"git -C {tree.path} rebase --onto {note['base']} …",
        )
    return commits


def _items(
    options: Options, work: Work, tree: Scratch, commits: Sequence[Commit]
) -> tuple[list[Item], list[str], list[Item]]:
    """The new series, what became of each patch, and those that are changed or new."""
    left = list(work.items)
    messages = {item.path: Head.of(item.data, item.path).message().strip() for item in left}
    series = Stack(work.base)
    items: list[Item] = []
    states: list[str] = []
    changed: list[Item] = []
    for commit in commits:
        if not commit.after:
            continue  # it changes nothing
        named = [item for item in left if messages[item.path] == commit.message]
        same = next((item for item in named if _makes(item, series, work, commit)), None)
        if same is not None:
            item, state = same, "same"
        else:
            old = named[0] if named else None
            diff = tree.diff(commit.parent, commit.name, work.prefix)
            taken = [one.path for one in (*work.items, *items)]
            item = _written(options, work, commit, old, diff, taken)
            state = "new" if old is None else "changed"
            changed.append(item)
        series.states.update(commit.after)
        left = [one for one in left if one.path != item.path]
        items.append(item)
        states.append(state)
    return items, states, changed


def _makes(item: Item, series: Stack, work: Work, commit: Commit) -> bool:
    """Whether a patch, put on what is there, leaves just what the commit does."""
    trial = Stack(work.base)
    trial.states = dict(series.states)
    try:
        _, _, before, after = trial.apply(item.path, item.data, work.strip)
    except PatchkitError:
        return False
    made = {path: state for path, state in after.items() if not _equal(state, before[path])}
    return made.keys() == commit.after.keys() and all(
        _equal(state, commit.after[path]) for path, state in made.items()
    )


def _equal(one: FileState | None, other: FileState | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.kind, bool(one.mode & 0o100), one.data) == (
        other.kind,
        bool(other.mode & 0o100),
        other.data,
    )


def _written(
    options: Options,
    work: Work,
    commit: Commit,
    old: Item | None,
    diff: bytes,
    taken: Sequence[str],
) -> Item:
    """A patch file of a commit: under its old head where it has one."""
    date = today(options.environ)
    if old is not None:
        head = old.data[: split_head(old.data)]
        lines = head.split(b"\n")
        lines = [
            f"Last-Update: {date}".encode() if line.startswith(b"Last-Update:") else line
            for line in lines
        ]
        return Item(old.path, b"\n".join(lines) + diff)
    subject, _, rest = commit.message.partition("\n")
    head_of = Head(subject or "Change it", rest.strip("\n")).having(
        origin=f"vendor, edited on {work.base.distribution} {work.base.version}",
        author=None if "patchkit@localhost" in commit.author else commit.author,
        last_update=date,
    )
    where = work.items[0].path.rpartition("/")[0]
    number = max((int(n) for n in map(_number, taken) if n.isdecimal()), default=0) + 1
    return Item(f"{where}/{number:04}-{slug(head_of.subject)}.patch", head_of.render() + diff)


def _number(path: str) -> str:
    return path.rpartition("/")[2].partition("-")[0]
