"""``fold``, ``split``, ``rename`` and ``delete``: a series as quilt users know it."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Sequence
from contextlib import suppress

from patchkit.bundles import read_patch
from patchkit.errors import Refused, UsageError
from patchkit.lint import named_patches
from patchkit.model import Bundle
from patchkit.releases.sources import Settings
from patchkit.session import Options, Report
from patchkit.stack import Stack, States
from patchkit.writing import manifests
from patchkit.writing.bundle import Draft, finish, load
from patchkit.writing.headers import Head, slug

from . import draft, place
from .importing import joined_head, per_file
from .series import Item, Work, find_patch, opened_work, rewritten


def fold(
    options: Options,
    settings: Settings,
    name: str,
    patches: Sequence[str],
    *,
    release: str | None = None,
    message: str | None = None,
    dry_run: bool = False,
) -> Report:
    """Make one patch of several that follow each other; the first keeps its name."""
    with opened_work(options, settings, name, release, f"patchkit fold {name} …") as work:
        paths = [item.path for item in work.items]
        numbers = sorted({find_patch(paths, one, name) for one in patches})
        if len(numbers) < 2:
            raise UsageError("fold takes two patches or more", hint="patchkit fold BUNDLE 1 2")
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise Refused(
                "the patches do not follow each other",
                code="not-neighbours",
                bundle=name,
                hint=f"fold what is between them, too; or change their order: patchkit edit {name}",
                detail=tuple(paths[numbers[0] : numbers[-1] + 1]),
            )
        series = Stack(work.base)
        for item in work.items[: numbers[0]]:
            series.apply(item.path, item.data, work.strip)
        before: States = {}
        after: States = {}
        some = [work.items[number] for number in numbers]
        for item in some:
            put = series.apply(item.path, item.data, work.strip)
            before = {**put.before, **before}
            after.update(put.after)
        head = joined_head([Head.of(item.data, item.path) for item in some], message)
        change = _change(head, before, after)
        folded = Item(some[0].path, change.render(work.prefix))
        items = [*work.items[: numbers[0]], folded, *work.items[numbers[-1] + 1 :]]
        return _finish("fold", work, items, settings, dry_run=dry_run)


def split(
    options: Options,
    settings: Settings,
    name: str,
    patch: str,
    *,
    files: Sequence[str] = (),
    release: str | None = None,
    dry_run: bool = False,
) -> Report:
    """Make several patches of one: one a file, or one of the files that match and one of the
    rest.  The first keeps the name."""
    with opened_work(options, settings, name, release, f"patchkit split {name} …") as work:
        paths = [item.path for item in work.items]
        number = find_patch(paths, patch, name)
        series = Stack(work.base)
        for item in work.items[:number]:
            series.apply(item.path, item.data, work.strip)
        whole = work.items[number]
        put = series.apply(whole.path, whole.data, work.strip)
        parts = _parts(_change(Head.of(whole.data, whole.path), put.before, put.after), files)
        if len(parts) < 2:
            raise Refused(
                f"{whole.path} would stay in one piece",
                code="nothing-to-split",
                bundle=name,
                patch=whole.path,
                hint="name some of its files, and not all: --file GLOB"
                if files
                else f"it changes one file; make two commits of it: patchkit edit {name}",
            )
        made: list[Item] = []
        for at, part in enumerate(parts):
            path = whole.path if not at else _free_name(work, whole.path, part.head.subject, made)
            made.append(Item(path, part.render(work.prefix)))
        items = [*work.items[:number], *made, *work.items[number + 1 :]]
        return _finish("split", work, items, settings, dry_run=dry_run)


def delete(
    options: Options,
    settings: Settings,
    name: str,
    patches: Sequence[str],
    *,
    release: str | None = None,
    dry_run: bool = False,
) -> Report:
    """Take patches out of a variant; those that stay must go on without them."""
    with opened_work(options, settings, name, release, f"patchkit delete {name} …") as work:
        paths = [item.path for item in work.items]
        numbers = {find_patch(paths, one, name) for one in patches}
        items = [item for number, item in enumerate(work.items) if number not in numbers]
        try:
            return _finish("delete", work, items, settings, dry_run=dry_run)
        except Refused as error:
            if error.hunk is not None:
                error.hint = "it builds on what is to be deleted: fold the two, or delete both"
            raise


def rename(
    options: Options,
    name: str,
    patch: str,
    new: str,
    *,
    dry_run: bool = False,
) -> Report:
    """Give a patch file another name, in every variant that names it."""
    folder = place.target_folder(options)
    bundle, before = load(folder, name)
    paths = named_patches(bundle)
    old = _meant(bundle, patch)
    file = new if new.endswith((".patch", ".diff")) else f"{new}.patch"
    if "/" in file or file.startswith(".") or file != file.strip():
        raise UsageError(f"{new!r} is no file name", hint="write it without a folder: 0001-what")
    path = f"{old.rpartition('/')[0]}/{file}"
    if path in paths or place.is_there(folder, f"patches/{path}"):
        raise Refused(
            f"there is a patch file {path} already",
            code="patch-exists",
            bundle=name,
            patch=path,
            hint="take another name",
        )
    text = manifests.edit_patches(
        before, lambda dist, versions, have: [path if one == old else one for one in have]
    )
    data = read_patch(folder, bundle, old)
    new_paths = [path if one == old else one for one in paths]
    patches = {one: data if one == path else read_patch(folder, bundle, one) for one in new_paths}
    # No byte of a patch differs, so what was known of releases is known still.
    made = finish(name, text, patches, bundle.pristine, [], [], before=before, gone=[old])
    return report_of("rename", folder, made, dry_run=dry_run)


def _meant(bundle: Bundle, patch: str) -> str:
    """The path of the patch that is meant, whichever variants name it.  The second patch of one
    variant is another file than the second of the next, so a place must be the same in all."""
    paths = named_patches(bundle)
    if patch in paths:
        return patch
    found: dict[str, None] = {}
    for variant in (one for target in bundle.targets for one in target.variants if one.patches):
        with suppress(Refused):
            found[variant.patches[find_patch(variant.patches, patch, bundle.name)]] = None
    if not found:
        return paths[find_patch(paths, patch, bundle.name)]
    if len(found) == 1:
        return next(iter(found))
    raise Refused(
        f"{patch!r} may be several patches",
        code="unknown-patch",
        bundle=bundle.name,
        hint=f"name it with its folder: {next(iter(found))}",
        detail=tuple(found),
        data={"candidates": list(found)},
    )


def _parts(change: draft.Change, files: Sequence[str]) -> list[draft.Change]:
    if not files:
        return list(per_file(change))
    sides: list[set[str]] = [set(), set()]
    for path in change.after:
        matches = any(fnmatch.fnmatchcase(path, glob) for glob in files)
        sides[not matches].add(path)
    parts = []
    for number, side in enumerate(sides):
        head = change.head
        if number:
            names = sorted(path.rpartition("/")[2] for path in side)
            head = head._replace(subject=f"{head.subject} ({', '.join(names[:3])})")
        after = {path: state for path, state in change.after.items() if path in side}
        before = {path: state for path, state in change.before.items() if path in side}
        if any(after[path] != before.get(path) for path in after):
            parts.append(draft.Change(head, before, after))
    return parts


def _free_name(work: Work, path: str, subject: str, made: Sequence[Item]) -> str:
    folder, _, file = path.rpartition("/")
    number = file.partition("-")[0]
    taken = {item.path for item in (*work.items, *made)}
    stem = f"{number}-{slug(subject)}" if number.isdecimal() else slug(subject)
    names = (f"{folder}/{stem}{'' if at == 1 else f'-{at}'}.patch" for at in itertools.count(1))
    return next(
        name
        for name in names
        if name not in taken and not place.is_there(work.folder, f"patches/{name}")
    )


def _change(head: Head, before: States, after: States) -> draft.Change:
    return draft.Change(head, {p: s for p, s in before.items() if s is not None}, after)


def _finish(
    command: str, work: Work, items: Sequence[Item], settings: Settings, *, dry_run: bool
) -> Report:
    made = rewritten(work, items, settings)
    return report_of(command, work.folder, made, dry_run=dry_run)


def report_of(command: str, folder: str, made: Draft, *, dry_run: bool) -> Report:
    """Write what differs from what is there, and say it."""
    present = place.read(folder, made.contents)
    changed = {path: data for path, data in made.contents.items() if data != present[path]}
    if not dry_run:
        made.write(folder)
    report = Report(command, made.as_json(folder), changed=bool(changed) and not dry_run)
    full = {path: f"{folder}/{path}" for path in changed}
    report.data["written"] = [full[p] for p in changed if changed[p] is not None]
    report.data["removed"] = [full[p] for p in changed if changed[p] is None]
    report.data["dry_run"] = dry_run
    report.notes += made.notes
    return report
