"""``sed``: a substitution in one file, as a patch of a bundle together with its assertion."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from patchkit import bundles as source
from patchkit.distributions import owner
from patchkit.errors import Refused, UsageError
from patchkit.model import Assertion, FileState
from patchkit.releases.sources import Settings
from patchkit.session import Options, Report
from patchkit.stack import Stack
from patchkit.writing.headers import Head
from patchkit.writing.who import author_of, today

from . import draft, place, suggest
from .base import Base, asked, opened, version_of


class Expression(NamedTuple):
    """``s/PATTERN/REPLACEMENT/FLAGS``: a regular expression of Python's ``re``, at every line."""

    pattern: re.Pattern[str]
    replacement: str
    everywhere: bool


class Hit(NamedTuple):
    """One substitution: its line in the old and in the new text (from 1), and both texts."""

    old_line: int
    new_line: int
    old: str
    new: str


def parse_expression(text: str) -> Expression:
    """Read ``s/a/b/g``.  Any character may stand for the slash; flags are ``g`` (all matches,
    else the first alone), ``i`` and ``s`` (a dot matches line ends, too)."""
    hint = "write it as 's/OLD/NEW/' or 's/OLD/NEW/g', with any character for the slash"
    if len(text) < 4 or text[0] != "s" or text[1].isalnum() or text[1] in "\\\n ":
        raise UsageError(f"{text!r} is no substitution", hint=hint)
    mark = re.escape(text[1])
    parts = re.split(rf"(?<!\\){mark}", text[2:])
    if len(parts) != 3 or not parts[0] or set(parts[2]) - set("gis"):
        raise UsageError(f"{text!r} is no substitution", hint=hint)
    pattern, replacement = (re.sub(rf"\\({mark})", r"\1", part) for part in parts[:2])
    flags = re.MULTILINE
    flags |= re.IGNORECASE if "i" in parts[2] else 0
    flags |= re.DOTALL if "s" in parts[2] else 0
    try:
        compiled = re.compile(pattern, flags)
        # A template is read with a match at hand: one that has the pattern's groups.
        probe = re.compile(f"(?:{pattern})|", flags).match("")
        assert probe is not None
        probe.expand(replacement)
    except (re.error, IndexError) as error:
        raise UsageError(
            f"{text!r}: {error}", hint="it is Python's re: groups are \\1 or \\g<1>"
        ) from None
    return Expression(compiled, replacement, "g" in parts[2])


def substituted(text: str, expression: Expression) -> tuple[str, list[Hit]]:
    """The text with the substitution made, and where."""
    hits: list[Hit] = []
    moved = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal moved
        new = match.expand(expression.replacement)
        line = text.count("\n", 0, match.start()) + 1
        hits.append(Hit(line, line + moved, match[0], new))
        moved += new.count("\n") - match[0].count("\n")
        return new

    out = expression.pattern.sub(replace, text, count=0 if expression.everywhere else 1)
    return out, hits


def sed(
    options: Options,
    settings: Settings,
    name: str,
    file: str,
    expression: str,
    *,
    release: str | None = None,
    message: str | None = None,
    author: str | None = None,
    with_asserts: bool = True,
    confirm: Callable[[list[Assertion]], bool] | None = None,
    dry_run: bool = False,
) -> Report:
    """Append a patch that makes the substitution to the bundle, which is made if need be.

    Raises :class:`Refused` where the pattern does not match, where more matches are there than
    are meant, or where nothing would change.
    """
    wanted = parse_expression(expression)
    folder = place.target_folder(options, make=True)
    there = name in source.list_names(folder)
    if not there:
        place.check_new_name(folder, name)
    with ExitStack() as stack:
        base, series = _series(settings, folder, name if there else None, file, release, stack)
        state, text = _read(base, series, file)
        changed, hits = substituted(text, wanted)
        _must_be_meant(text, wanted, hits, changed, file)
        after = state._replace(data=changed.encode(), sha256=None)
        message = message or f"{_short(hits[0])} in {file.rpartition('/')[2]}"
        subject, _, rest = message.partition("\n")
        head = Head(subject, rest.strip("\n")).having(
            origin=f"vendor, substituted in {base.distribution} {base.version}",
            author=author_of(options.environ, author),
            last_update=today(options.environ),
        )
        change = draft.Change(head, {file: state}, {file: after})
        piece = draft.Piece(base.distribution, base.version, [change], base.digests([file]))
        asserts = assertions(base.distribution, file, state, after, hits) if with_asserts else []
        made = draft.add(
            *(folder, name, piece, settings),
            message=message,
            with_asserts=with_asserts,
            asserts=asserts,
            confirm=confirm,
            generators=lambda _: base.generators(),
        )
    written = [] if dry_run else made.write(folder)
    report = Report("sed", {**made.as_json(folder), "written": written}, changed=bool(written))
    report.data["substitutions"] = [hit._asdict() for hit in hits]
    report.notes += made.notes
    return report


def _read(base: Base, series: Stack, file: str) -> tuple[FileState, str]:
    """A file with the patches so far, and its text."""
    state = series.read(file)
    if state is None:
        raise Refused(
            f"{base.distribution} {base.version} has no file {file}",
            code="file-missing",
            file=file,
            hint="write it as it lies in site-packages: sglang/srt/server_args.py",
        )
    try:
        return state, state.data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(
            f"{file} is no UTF-8 text",
            code="not-text",
            file=file,
            hint="edit the installed file by hand, then: patchkit capture NAME",
        ) from None


def assertions(
    distribution: str, file: str, before: FileState, after: FileState, hits: list[Hit]
) -> list[Assertion]:
    """The old text absent and the new one there, within the def around each substitution: the
    matched text alone where that proves something, else the lines that it stands on."""
    bare = Assertion("assert", distribution, file)
    old_lines = before.data.decode().split("\n")
    new_lines = after.data.decode().split("\n")
    found: list[Assertion] = []
    for hit in hits:
        olds = (hit.old.strip(), old_lines[hit.old_line - 1].strip())
        news = (hit.new.strip(), new_lines[hit.new_line - 1].strip())
        within = suggest.enclosing(after.data, hit.new_line)
        for texts, absent in ((olds, True), (news, False)):
            for text in texts:
                one = bare._replace(text=text)
                if absent:
                    one = one._replace(minimum=0, maximum=0)
                ways = [] if not text or "\n" in text else suggest.ways(one, within)
                proven = [w for w in ways if suggest.proves(w, before.data, after.data)]
                if proven:
                    found += [way for way in proven[:1] if way not in found]
                    break
    return found


def _series(
    settings: Settings,
    folder: str,
    name: str | None,
    file: str,
    release: str | None,
    stack: ExitStack,
) -> tuple[Base, Stack]:
    """The release, and with the patches that the bundle has for it."""
    distribution, version = asked(release)
    if distribution is None and settings.environment is not None:
        dist = owner(settings.environment, file)
        distribution = None if dist is None else dist.name
    bundle = None if name is None else source.load_bundle(folder, name)
    if distribution is None and bundle is not None and len(bundle.targets) == 1:
        distribution = bundle.targets[0].distribution
    if distribution is None:
        raise Refused(
            f"no installed distribution has {file}",
            code="which-distribution",
            file=file,
            hint="name the release (--release DIST==VERSION), and write the file as it lies in"
            " site-packages",
        )
    target = None
    if bundle is not None:
        target = next((t for t in bundle.targets if t.distribution == distribution), None)
    if bundle is not None and target is not None:
        version = version_of(settings, bundle, target, version)[0] or version
    base = stack.enter_context(opened(settings, distribution, version))
    series = Stack(base)
    if bundle is not None and target is not None:
        from patchkit.manifest import select_variant

        variant = select_variant(target, base.version)
        for path in () if variant is None else variant.patches:
            assert variant is not None
            series.apply(path, source.read_patch(folder, bundle, path), variant.strip)
    return base, series


def _must_be_meant(
    text: str, expression: Expression, hits: list[Hit], changed: str, file: str
) -> None:
    if not hits:
        raise Refused(
            f"nothing in {file} matches '{expression.pattern.pattern}'",
            code="no-match",
            file=file,
            hint="it is Python's re, at every line, and looks at the file as the bundle's patches"
            " leave it: escape what is no pattern, as in \\[9, 10\\]",
        )
    if changed == text:
        raise Refused(
            f"the substitution leaves {file} as it is",
            code="no-change",
            file=file,
            hint="is it there already?",
        )
    matches = list(expression.pattern.finditer(text))
    if not expression.everywhere and len(matches) > 1:
        lines = [text.count("\n", 0, match.start()) + 1 for match in matches]
        raise Refused(
            f"'{expression.pattern.pattern}' matches {len(matches)} times in {file}",
            code="ambiguous",
            file=file,
            hint="match more of the line that is meant, or say that all are: s/…/…/g",
            detail=tuple(f"line {line}" for line in lines[:10]),
            data={"lines": lines},
        )


def _short(hit: Hit) -> str:
    old, new = (" ".join(text.split()) for text in (hit.old, hit.new))
    return f"Make {old[:40]} {new[:40]}".strip()
