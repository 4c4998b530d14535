"""list and show: the bundles on offer, and what each means for this environment.

Changes nothing.
"""

from __future__ import annotations

from typing import Any

from . import bundles as source
from .distributions import find_distribution
from .errors import Locked, PatchkitError, Refused
from .fit import made_for
from .fitting import Pristine, choose
from .layers import shadowed
from .lock import steady
from .manifest import profile_for, release_order, version_matches
from .model import Assertion, Bundle
from .patchfile import parse
from .planning import compute
from .series import Chosen
from .session import Options, Report, Session
from .state import State
from .workflow import add_to_set

INTERRUPTED = "a command was interrupted here, or is under way; first run: patchkit recover"
#: Seconds for which ``list`` waits for a change under way before it lists without it.
_PATIENCE = 1.0


def list_bundles(options: Options) -> Report:
    """Every bundle with its state here: applied, needed, upstream, unsupported, or why
    it does not go on."""
    session = Session(options)
    home = session.home

    def look() -> list[dict[str, Any]]:
        state = home.read_state()
        return [_row(session, state, name) for name in source.list_names(session.folder)]

    notes = []
    try:
        rows = steady(home, min(options.lock_timeout, _PATIENCE), look)
    except (Locked, Refused) as error:
        if error.code not in ("locked", "interrupted"):
            raise
        rows = [_row(session, None, name) for name in source.list_names(session.folder)]
        notes.append(INTERRUPTED)
    for name, layers in shadowed(session.folder).items():
        notes.append(f"{name} is taken from {layers[-1]}, before {', '.join(layers[:-1])}")
    return Report(
        "list",
        {"environment": session.described(), "folder": session.folder, "bundles": rows},
        notes=notes,
    )


def _row(session: Session, state: State | None, name: str) -> dict[str, Any]:
    try:
        bundle = source.load_bundle(session.folder, name)
    except PatchkitError as error:
        return {"name": name, "state": "broken", "reason": error.message, "summary": ""}
    opens, limits = opened(bundle)
    row: dict[str, Any] = {
        "name": bundle.name,
        "version": bundle.version,
        "summary": bundle.summary,
        "opens": opens,
        "limits": limits,
        "conflicts": list(bundle.conflicts),
        "requires": list(bundle.requires),
        "variants": {},
        "reason": None,
    }
    applied = {} if state is None else {e["name"]: e for e in state["bundles"]}
    if name in applied:
        entry = applied[name]
        row["state"] = "applied"
        row["variants"] = {v["distribution"]: v["versions"] for v in entry["variants"]}
        if entry["version"] != bundle.version:
            row["reason"] = f"applied is version {entry['version']}"
        return row
    try:
        with Pristine(session.env, session.home, state, [name]) as view:
            chosen = choose(view, session.folder, name)
            row["variants"] = {p.distribution.name: p.versions for p in chosen.parts}
            row["fits"] = {p.distribution.name: p.how for p in chosen.parts}
            if chosen.reason is not None:
                unneeded = all(part.unneeded for part in chosen.parts)
                row["state"] = "unneeded" if unneeded else "upstream"
                row["reason"] = chosen.reason
                return row
            row["reason"] = "; ".join(chosen.notes) or None
            wanted = add_to_set(session, view, state, [chosen], {})
        environ = session.options.environ
        planned = compute(session.env, session.home, state, wanted, environ, [name])
        row["state"] = "needed" if planned.work.changes else "setting"
    except PatchkitError as error:
        row["state"] = {
            "unsupported-release": "unsupported",
            "not-installed": "not-installed",
            "already-applied": "upstream",
            "conflict": "conflict",
        }.get(error.code, "refused")
        row["reason"] = error.message
    return row


def opened(bundle: Bundle) -> tuple[list[str], list[str]]:
    """What a description says that the bundle opens, and is known not to achieve: its
    paragraphs that begin with "Opens:" and "Does not:"."""
    opens: list[str] = []
    limits: list[str] = []
    for line in bundle.description.splitlines():
        if line.startswith("Opens: "):
            opens.append(line[len("Opens: ") :].strip())
        elif line.startswith("Does not: "):
            limits.append(line[len("Does not: ") :].strip())
    return opens, limits


def show(options: Options, name: str) -> Report:
    """One bundle: manifest, variants, patches with their diffstat, assertions, profile."""
    from .lint import diffstat

    session = Session(options)
    bundle = source.load_bundle(session.folder, name)
    opens, limits = opened(bundle)
    notes: list[str] = []
    versions = _installed(session, bundle)
    chosen = _chosen(session, name, notes)
    parts = {} if chosen is None else {p.distribution.name: p for p in chosen.parts}
    releases = {**versions, **{name: p.release for name, p in parts.items() if p.release}}
    targets = []
    for target in bundle.targets:
        installed = versions.get(target.distribution)
        part = parts.get(target.distribution)
        variants = []
        for variant in target.variants:
            if part is not None:
                fits = variant.versions == part.versions
            else:
                fits = installed is not None and version_matches(variant.versions, installed)
            patches = []
            for path in variant.patches:
                data = source.read_patch(session.folder, bundle, path)
                patch = parse(data, path)
                patches.append(
                    {
                        "path": path,
                        "sha256": patch.sha256,
                        "header": dict(patch.dep3),
                        "files": [
                            {"path": file, "added": added, "removed": removed}
                            for file, added, removed in diffstat(data)
                        ],
                    }
                )
            variants.append(
                {
                    "versions": variant.versions,
                    "strip": variant.strip,
                    "fits": fits,
                    "how": part.how if part is not None and fits else None,
                    "upstream": variant.upstream,
                    "unneeded": variant.unneeded,
                    "made_for": sorted(
                        {r for one in made_for(bundle, target, variant) for r in one.releases},
                        key=release_order,
                    ),
                    "patches": patches,
                }
            )
        targets.append(
            {
                "distribution": target.distribution,
                "required": target.required,
                "installed": installed,
                "variants": variants,
            }
        )
    if session.home.unfinished():
        notes.append(INTERRUPTED)
    env, args = profile_for(bundle, releases)
    data_out: dict[str, Any] = {
        "environment": session.described(),
        "bundle": {
            "name": bundle.name,
            "version": bundle.version,
            "summary": bundle.summary,
            "description": bundle.description.strip(),
            "opens": opens,
            "limits": limits,
            "requires": list(bundle.requires),
            "conflicts": list(bundle.conflicts),
            "targets": targets,
            "asserts": [_assertion(a, releases) for a in bundle.asserts],
            "profile": {"env": env, "args": list(args)},
            "caches": {kind: list(names) for kind, names in bundle.caches},
            "mapping": [] if chosen is None else _mapping(session, chosen, notes),
        },
    }
    return Report("show", data_out, notes=notes)


def _installed(session: Session, bundle: Bundle) -> dict[str, str]:
    names = {t.distribution for t in bundle.targets}
    names |= {a.distribution for a in bundle.asserts}
    names |= {v.distribution for v in bundle.profile.variants}
    found: dict[str, str] = {}
    for name in names:
        dist = find_distribution(session.env, name)
        if dist is not None:
            found[name] = dist.version
    return found


def _chosen(session: Session, name: str, notes: list[str]) -> Chosen | None:
    """The variants that fit, by version and bytes; None where one does not, which is said."""
    try:
        state = None if session.home.unfinished() else session.home.read_state()
        with Pristine(session.env, session.home, state, [name]) as view:
            chosen = choose(view, session.folder, name)
    except Refused as error:
        notes.append(error.message)
        return None
    notes += chosen.notes
    if chosen.reason is not None:
        notes.append(chosen.reason)
    return chosen


def _mapping(session: Session, chosen: Chosen, notes: list[str]) -> list[dict[str, Any]]:
    """How header paths reach the installed files."""
    from .series import build

    try:
        series = build(session.env, session.home, [chosen])
    except Refused as error:
        notes.append(error.message)
        return []
    forms = {(f.example, f.strip, f.prefix) for _, _, f in series.forms}
    return [{"form": e, "strip": s, "prefix": p} for e, s, p in sorted(forms)]


def _assertion(assertion: Assertion, releases: dict[str, str]) -> dict[str, Any]:
    installed = releases.get(assertion.distribution)
    judged = installed is not None and (
        not assertion.versions or version_matches(assertion.versions, installed)
    )
    kind = next(
        k
        for k in ("pattern", "text", "literal", "condition", "defined")
        if getattr(assertion, k) not in (None, ())
    )
    return {
        "key": assertion.key,
        "kind": kind,
        "file": assertion.file,
        "within": assertion.within,
        "expects": _expected(assertion),
        "message": assertion.message,
        "versions": assertion.versions,
        "judged": judged,
    }


def _expected(assertion: Assertion) -> str:
    """What an assertion asks for, in a line."""
    if assertion.literal is not None:
        values = ", ".join(map(repr, assertion.literal.has))
        return f"{assertion.literal.name} has {values}"
    if assertion.condition is not None:
        given = ", ".join(f"{name} = {value!r}" for name, value in assertion.condition.given)
        return f"{assertion.condition.test} is {assertion.condition.expected}, given {given}"
    if assertion.defined:
        return f"defined: {', '.join(assertion.defined)}"
    low, high = assertion.minimum or 0, assertion.maximum
    if high is None:
        times = "is there" if low < 2 else f"is there {low} times or more"
    elif high == 0:
        times = "is absent"
    else:
        times = f"is there {high} times" if low == high else f"is there {low} to {high} times"
    return f"{assertion.pattern or assertion.text} {times}"
