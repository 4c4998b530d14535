"""Patches of others become a bundle: mapped, put on, and written anew in the house style.

Reads a patch file, a mailbox, a folder of patches, or a range of a checkout's commits.  Each
patch must go onto the release as it is; what the release does not hold (tests, docs) is left
out and said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from patchkit import bundles as source
from patchkit.distributions import list_distributions
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.mapping import Known, map_patch
from patchkit.model import Assertion
from patchkit.patchfile import parse
from patchkit.releases.sources import Settings
from patchkit.session import Options, Report
from patchkit.stack import Stack, States
from patchkit.writing.headers import Head, slug
from patchkit.writing.who import today

from . import draft, place
from .base import Base, asked, opened

_MAIL = re.compile(
    rb"^From (?:[0-9a-f]{40,64} |\S+ +(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )[^\n]*\n(?=[A-Z][\w-]*:)",
    re.MULTILINE,
)
_COMMIT = re.compile(rb"From ([0-9a-f]{40,64}) ")


class Given(NamedTuple):
    """One patch as it came: what it is called, its bytes, and the commit that it was."""

    name: str
    data: bytes
    commit: str | None = None


class Left(NamedTuple):
    """A file that is left out, and of which patch."""

    patch: str
    file: str


def import_patches(
    options: Options,
    settings: Settings,
    origin: str,
    *,
    name: str | None = None,
    release: str | None = None,
    message: str | None = None,
    author: str | None = None,
    one_per_file: bool = False,
    join: bool = False,
    with_asserts: bool = True,
    confirm: Callable[[list[Assertion]], bool] | None = None,
    dry_run: bool = False,
) -> Report:
    """Make a bundle of patches, or a variant of one that is there and has none for the release.

    Raises :class:`Refused` where a patch does not go on, with the hunk and what to try.
    """
    if one_per_file and join:
        raise UsageError("--one-per-file and --join exclude each other", hint="take one of them")
    given = read_source(origin, options.cwd)
    folder = place.target_folder(options, make=True)
    name = name or slug(_stem(origin))
    there = name in source.list_names(folder)
    if not there:
        place.check_new_name(folder, name)
    wanted, version = asked(release)
    with ExitStack() as stack:
        base = _base(settings, given, wanted, version, stack)
        if there:
            _must_be_new_there(folder, name, base)
        changes, left, skipped = _changes(options, base, given, author)
        if not changes:
            raise _nothing(origin, base, left)
        if join:
            changes = [_joined(changes, message)]
        if one_per_file:
            changes = [one for change in changes for one in per_file(change)]
        touched = {path for change in changes for path in change.before}
        piece = draft.Piece(base.distribution, base.version, changes, base.digests(touched))
        made = draft.add(
            *(folder, name, piece, settings),
            message=message or changes[0].head.subject,
            with_asserts=with_asserts,
            confirm=confirm,
            generators=lambda _: base.generators(),
        )
    written = [] if dry_run else made.write(folder)
    report = Report("import", {**made.as_json(folder), "written": written}, changed=bool(written))
    report.data["release"] = {"distribution": base.distribution, "version": base.version}
    report.data["left_out"] = [one._asdict() for one in left]
    report.notes += [
        f"left out of {one.patch}: {one.file}, which no {base.distribution} {base.version} holds"
        for one in left
    ]
    report.notes += [f"left out: {one}, which changes nothing here" for one in skipped]
    report.notes += made.notes
    return report


def _nothing(origin: str, base: Base, left: Sequence[Left]) -> Refused:
    return Refused(
        f"nothing in {origin} is about a file of {base.distribution} {base.version}",
        code="nothing-to-import",
        hint="tests, docs and build files of the source tree are in no wheel",
        detail=tuple(f"left out: {one.file}" for one in left),
    )


def read_source(origin: str, cwd: str = "") -> list[Given]:
    """The patches of a source, in their order.

    ``FILE`` is a patch or a mailbox; ``FOLDER`` one of patches (by quilt's ``series`` where it
    has one, else by name); ``CHECKOUT@RANGE`` are the commits of a range.
    """
    path = os.path.join(cwd, os.path.expanduser(origin))
    if os.path.isdir(path):
        return _from_folder(path)
    if os.path.isfile(path):
        return list(_from_file(path))
    folder, at, commits = path.rpartition("@")
    if at and os.path.isdir(folder):
        return _from_checkout(folder, commits)
    raise Refused(
        f"there is no {origin}",
        code="no-source",
        hint="name a patch file, a mailbox, a folder of patches, or CHECKOUT@FROM..TO",
    )


def _from_file(path: str) -> Iterator[Given]:
    with open(path, "rb") as file:
        data = file.read()
    yield from split_mails(os.path.basename(path), data)


def split_mails(name: str, data: bytes) -> Iterator[Given]:
    """The mails of a mailbox (``git format-patch``, a pull request's ``.patch``), each one; what
    is no mailbox is one patch.  A mail without a diff, such as a cover letter, is none."""
    starts = [match.start() for match in _MAIL.finditer(data)]
    if not starts or data[: starts[0]].strip():
        yield Given(name, data)
        return
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(data)
        piece = data[start:end]
        if b"\n--- " in piece or b"\ndiff --git " in piece:
            commit = _COMMIT.match(piece)
            part = f"{name}#{number + 1}" if len(starts) > 1 else name
            yield Given(part, piece, None if commit is None else commit[1].decode())


def _from_folder(path: str) -> list[Given]:
    names = sorted(n for n in os.listdir(path) if source.is_loose(n))
    series = os.path.join(path, "series")
    if os.path.isfile(series):
        with open(series, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.partition("#")[0].split() for line in file]
        names = [words[0] for words in lines if words]
    found = [one for name in names for one in _from_file(os.path.join(path, name))]
    if not found:
        raise Refused(
            f"{path} holds no patches",
            code="no-source",
            hint="their names end in .patch or .diff; of a checkout, name a range: FOLDER@FROM..TO",
        )
    return found


def _from_checkout(folder: str, commits: str) -> list[Given]:
    from patchkit.gitsource import opened as repository
    from patchkit.gitsource import run_git

    if commits.startswith("-"):
        raise UsageError(f"{commits!r} is no range of commits", hint="FOLDER@FROM..TO")
    if ".." not in commits:
        commits = f"{commits}^..{commits}"
    with repository(folder) as repo:
        listed = ("rev-list", "--max-count=1", "--end-of-options", commits)
        status, _ = run_git(repo, folder, *listed, fine=(0, 128))
        if status:
            raise Refused(
                f"{folder} has no commits {commits}",
                code="no-source",
                hint=f"git -C {folder} log --oneline --all shows what there is",
            )
        _, top = run_git(repo, folder, "rev-parse", "--show-toplevel")
        _, data = run_git(
            *(repo, os.fsdecode(top.rstrip(b"\n")), "-c", "core.quotePath=true"),
            *("format-patch", "--stdout", "--full-index", "--binary", "--no-ext-diff"),
            *("--no-signature", "--no-attach", "--src-prefix=a/", "--dst-prefix=b/"),
            *("--unified=3", "--end-of-options", commits),
        )
    if not data.strip():
        raise Refused(
            f"there is no commit in {commits}",
            code="no-source",
            hint=f"git -C {folder} log {commits}",
        )
    return list(split_mails(commits, data))


def _stem(origin: str) -> str:
    folder, at, commits = origin.rpartition("@")
    if at and ".." in commits:
        return commits.rpartition("..")[2] or os.path.basename(folder)
    return re.sub(r"\.(patch|diff|mbox|mbx)$", "", os.path.basename(origin.rstrip("/")))


# -- the release ------------------------------------------------------------------------


def _base(
    settings: Settings,
    given: Sequence[Given],
    distribution: str | None,
    version: str | None,
    stack: ExitStack,
) -> Base:
    if distribution is not None:
        return stack.enter_context(opened(settings, distribution, version))
    files = [file for one in given for file in parse(one.data, one.name).files]
    parts = {part for file in files for part in file.path.split("/")}
    fitting = []
    listed = [] if settings.environment is None else list_distributions(settings.environment)
    for dist in listed:
        try:
            with opened(settings.at_hand(), dist.name) as base:
                known = Known(base.paths())
                if parts & set(known.packages):
                    map_patch(files, known)
                    fitting.append(dist.name)
        except PatchkitError:
            continue
    if len(fitting) == 1:
        return stack.enter_context(opened(settings, fitting[0]))
    what = f"several do: {', '.join(fitting)}" if fitting else "none does"
    raise Refused(
        f"no one installed distribution holds the files of the patches; {what}",
        code="which-distribution",
        hint="name the release: --release DIST==VERSION",
    )


def _must_be_new_there(folder: str, name: str, base: Base) -> None:
    from patchkit.manifest import select_variant

    bundle = source.load_bundle(folder, name)
    for target in bundle.targets:
        if target.distribution == base.distribution and select_variant(target, base.version):
            raise Refused(
                f"there is a bundle {name}, and it has a variant for {base.distribution}"
                f" {base.version}",
                code="bundle-exists",
                bundle=name,
                hint="import under another name: --name NAME",
            )


# -- the patches ------------------------------------------------------------------------


def _changes(
    options: Options, base: Base, given: Sequence[Given], author: str | None
) -> tuple[list[draft.Change], list[Left], list[str]]:
    series = Stack(base)
    changes: list[draft.Change] = []
    left: list[Left] = []
    skipped: list[str] = []
    for one in given:
        try:
            _, mapping, before, after = series.apply(one.name, one.data, None)
        except Refused as error:
            if error.code == "path-not-found" and error.data.get("left_out"):
                left += [Left(one.name, _bare(path)) for path in error.data["left_out"]]
                continue
            if error.hunk is not None:
                error.hint = (
                    f"if it was made for another release: --release {base.distribution}==VERSION,"
                    " then patchkit port; else compare the file"
                )
            raise
        left += [Left(one.name, _bare(path)) for path in mapping.left_out]
        head = Head.of(one.data, os.path.basename(one.name)).having(
            origin=f"other, commit {one.commit}" if one.commit else f"other, {one.name}",
            author=author,
            last_update=today(options.environ),
        )
        if before == after:
            skipped.append(one.name)
        else:
            changes.append(_change(head, before, after))
    return changes, left, skipped


def _bare(path: str) -> str:
    return path[2:] if path.startswith(("a/", "b/")) else path


def _change(head: Head, before: States, after: States) -> draft.Change:
    return draft.Change(head, {p: s for p, s in before.items() if s is not None}, after)


def _joined(changes: Sequence[draft.Change], message: str | None) -> draft.Change:
    """All in one: the first one's head, the others' subjects below it."""
    before: States = {}
    after: States = {}
    for change in changes:
        for path in {**change.before, **change.after}:
            before.setdefault(path, change.before.get(path))
        after.update(change.after)
    head = joined_head([change.head for change in changes], message)
    return _change(head, before, after)


def joined_head(heads: Sequence[Head], message: str | None = None) -> Head:
    """The head of several patches in one."""
    first = heads[0]
    text = [first.text] if first.text.strip() else []
    text += [f"{head.subject}\n\n{head.text}".strip() for head in heads[1:]]
    if message:
        subject, _, rest = message.partition("\n")
        return first._replace(subject=subject, text=rest.strip("\n"))
    return first._replace(text="\n\n".join(text))


def per_file(change: draft.Change) -> Iterator[draft.Change]:
    """A patch of its own for each file that changes; a file that moves is one that goes and
    one that comes."""
    paths = [p for p in sorted(change.after) if change.after[p] != change.before.get(p)]
    for path in paths:
        before = {path: change.before[path]} if path in change.before else {}
        head = change.head
        if len(paths) > 1:
            head = head._replace(subject=f"{head.subject} ({path.rpartition('/')[2]})")
        yield draft.Change(head, before, {path: change.after[path]})
