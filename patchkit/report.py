"""Reports → text for a person, and the JSON object of the contract.

Owns wording and layout of results.  Must not do I/O: it returns strings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import PatchkitError
from .session import Report

Style = Callable[[str, str], str]  # (text, colour) → text


def plain(text: str, colour: str) -> str:
    """The style of a stream without colour."""
    return text


def as_json(report: Report) -> dict[str, Any]:
    """The object of the contract: schema, command, ok, exit code, then the command's own."""
    out: dict[str, Any] = {
        "schema": 1,
        "command": report.command,
        "ok": report.exit_code == 0,
        "exit_code": report.exit_code,
        "environment": None,
    }
    out.update(report.data)
    out["notes"] = report.notes
    return out


NO_ENVIRONMENT: dict[str, Any] = {"site_packages": None, "python": None}


def error_as_json(
    command: str | None, error: PatchkitError, environment: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The object of a command that failed; ``diagnosis`` holds what else is known of the
    error (candidates, expected and found lines, the nearest place)."""
    out = {
        "schema": 1,
        "command": command,
        "ok": False,
        "exit_code": error.exit_code,
        "environment": environment or NO_ENVIRONMENT,
        "error": error.as_dict(),
    }
    if error.data:
        out["diagnosis"] = error.data
    return out


def error_text(error: PatchkitError) -> str:
    """``patchkit: where: message``, what was found, then ``hint:`` with the next step."""
    where = []
    if error.bundle and f"'{error.bundle}'" not in error.message:
        where.append(f"bundle {error.bundle}")
    if error.patch and error.patch != error.bundle:
        where.append(f"patch {error.patch}" + (f" line {error.line}" if error.line else ""))
    elif error.line:
        where.append(f"line {error.line}")
    if error.file and error.file not in error.message:
        where.append(f"file {error.file}")
    if error.hunk:
        where.append(f"hunk {error.hunk}")
    prefix = f"{', '.join(where)}: " if where else ""
    lines = [f"patchkit: {prefix}{error.message}", *(f"  {line}" for line in error.detail)]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(_cut(_printable(line)) for line in lines)


def _cut(line: str) -> str:
    """A line of which not more is shown than a person reads; a path may have any length."""
    return line if len(line) <= 1500 else f"{line[:1000]} … {line[-400:]}"


def text(report: Report, style: Style = plain, *, verbose: bool = False) -> str:
    """What goes to standard output; empty where there is nothing to say."""
    render = report.render or _RENDERERS.get(report.command)
    lines = [] if render is None else render(_shown(report.data), style, verbose)
    return "\n".join(lines)


def problem_lines(problems: list[dict[str, Any]]) -> list[str]:
    """Findings of verify, status and lint, each with its next step; of several in a row that
    have the same one, behind the last."""
    lines: list[str] = []
    for problem, following in zip(problems, [*problems[1:], {}], strict=True):
        place = f":{problem['line']}" if problem.get("line") else ""
        message = str(problem["message"])
        if place and problem.get("file"):
            message = message.replace(str(problem["file"]), f"{problem['file']}{place}", 1)
        lines.append(_printable(f"{problem['kind']}: {message}"))
        if problem.get("hint") and problem["hint"] != following.get("hint"):
            lines.append(_printable(f"  hint: {problem['hint']}"))
    return lines


# -- one function a command -------------------------------------------------------------


def _change(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = []
    for file in data["files"]:
        hunks = file["hunks"]
        moved = [h for h in hunks if h["offset"]]
        note = ""
        if hunks and verbose:
            note = "  " + ", ".join(
                f"line {h['line']}" + (f" ({h['offset']:+d})" if h["offset"] else "") for h in hunks
            )
        elif moved:
            note = "  offset " + ", ".join(f"{h['offset']:+d}" for h in moved)
        colour = {"added": "green", "deleted": "red"}.get(file["change"], "yellow")
        word = style(f"{file['change']:9}", colour)
        lines.append(f"{word} {file['path']}{note}")
    if verbose:
        lines += [
            f"{'mapped':9} {_form(m['form'])} of {m['patch']}: strip {m['strip']}"
            + (f", prefix {m['prefix']}" if m["prefix"] else "")
            for m in data.get("mapping", [])
        ]
    lines += [f"{'left out':9} {item['file']} (in no wheel)" for item in data.get("left_out", [])]
    lines += [f"{'set aside':9} {path}" for path in data.get("caches", [])]
    return lines


def _apply(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = _change(data, style, verbose)
    names = ", ".join(data["bundles"])
    lines += [f"nothing to do: {one['name']} ({one['reason']})" for one in data["upstream"]]
    if not names:
        return lines
    if data.get("dry_run"):
        lines.append(f"would be applied: {names}")
    elif lines:
        lines.append(f"applied: {names}")
    else:
        lines.append(f"applied: {names} (no file had to change)")
    if data["fingerprint"]:
        lines.append(f"fingerprint: {data['fingerprint'][:16]}")
    return lines


def _sync(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = _change(data, style, verbose)
    would = "would be " * bool(data.get("dry_run"))
    lines += [f"nothing to do: {one['name']} ({one['reason']})" for one in data["upstream"]]
    if data["reverted"]:
        lines.append(f"{would}reverted: {', '.join(data['reverted'])}")
    names = ", ".join(data["bundles"])
    if data["in_sync"]:
        lines.append(f"in sync: {names or 'nothing is applied'}")
    else:
        lines.append(f"{would}applied: {names}" if names else "nothing is applied")
    if data["fingerprint"]:
        lines.append(f"fingerprint: {data['fingerprint'][:16]}")
    return lines


def _revert(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = _change(data, style, verbose)
    dry = data.get("dry_run")
    if data["reverted"]:
        lines.append(f"{'would be ' * bool(dry)}reverted: {', '.join(data['reverted'])}")
    if data["bundles"]:
        lines.append(f"{'afterwards' if dry else 'still'} applied: {', '.join(data['bundles'])}")
    else:
        lines.append(f"{'afterwards ' * bool(dry)}nothing is applied")
    return lines


def _form(first: str) -> str:
    """How header paths begin, behind git's own ``a/`` and ``b/``."""
    return f"{first}/…" if first else "all"


def _recover(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    words = {
        None: "nothing was interrupted",
        "back": "the interrupted command was undone: everything is as before it",
        "forward": "the interrupted command was finished",
        "tidied": "an interrupted command left files that waited; they were removed",
    }
    if data.get("trial"):
        ended = f"the interrupted trial {data['trial']} was finished: as before it"
        return [ended] if data["recovered"] is None else [words[data["recovered"]], ended]
    return [words[data["recovered"]]]


def _verify(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    return []  # a launcher may read standard output as a protocol


def verify_summary(data: dict[str, Any]) -> str:
    """The line of ``verify -v`` where all is well."""
    if data.get("distributions") is not None:
        names = ", ".join(data["distributions"]) or "no distribution to compare"
        return f"pristine: {names}"
    if not data["bundles"]:
        return "nothing is applied"
    return (
        f"verified: {', '.join(data['bundles'])} ({_count(data['checked'], 'file')},"
        f" fingerprint {data['fingerprint'][:16]})"
    )


def _status(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = [f"environment: {data['environment']['site_packages']}"]
    if not data["applied"]:
        lines.append("nothing is applied")
    else:
        lines.append(f"fingerprint: {data['fingerprint']}")
        lines.append("applied:")
        for item in data["applied"]:
            variant = f"  ({item['variant']})" if item["variant"] else ""
            lines.append(f"  {style(item['name'], 'green')} {item['version']}{variant}")
            if item["origin"]:
                came = item["origin"]
                dirty = ", with changes that are not committed" if came["dirty"] else ""
                lines.append(
                    f"      from: {came['repository']} at {came['revision'] or 'no commit'}{dirty}"
                )
            if item["env"]:
                pairs = " ".join(f"{k}={v}" for k, v in sorted(item["env"].items()))
                lines.append(f"      environment: {pairs}")
            if item["args"]:
                lines.append(f"      arguments: {' '.join(item['args'])}")
        if data["files"]:
            lines.append("files:")
            lines += [f"  {f['change']:9} {f['path']}" for f in data["files"]]
    if data["problems"]:
        lines.append(style("problems:", "red"))
        lines += [f"  {line}" for line in problem_lines(data["problems"])]
    if data["trial"] and data["trial"]["alive"]:
        one = data["trial"]
        lines.append(f"trial: {one['name']}, of process {one['pid']} on {one['host']}")
        lines.append(f"      {one['command']}")
    if data["running"]:
        from .launches import described

        lines.append("running:")
        for one in data["running"]:
            lines.append(f"  {described(one)}")
            if one["restart"]:
                word = style("restart needed", "yellow")
                lines.append(f"      {word}: started before the last change")
            else:
                lines.append("      started after the last change")
    if not data["all_seen"]:
        lines.append("running: not every process could be looked at in time")
    if data["next"]:
        lines.append(f"next: {style(data['next'], 'cyan')}")
    return lines


_STATES = {
    "applied": "green",
    "needed": "yellow",
    "setting": "yellow",
    "upstream": "cyan",
    "unneeded": "cyan",
}


_HOW = {
    "bytes": " (by its files, whatever the version says)",
    "unproven": " (by its version alone: its files are not those that the variant was made for)",
}

_LEGEND = {
    "needed": "fits, and would change files",
    "setting": "fits, and changes no file: environment variables and launch arguments",
    "upstream": "what is installed has the change already",
    "unneeded": "what it would change is not in what is installed",
    "unsupported": "no variant for the installed release",
    "refused": "would not go on as it is",
}


def _list(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    rows = data["bundles"]
    if not rows:
        return [f"no bundles in {data['folder']}"]
    width = max(len(row["name"]) for row in rows)
    states = {row["state"] for row in rows}
    lines = []
    for row in rows:
        state = style(f"{row['state']:13}", _STATES.get(row["state"], "red"))
        version = row.get("version", "")
        lines.append(f"{row['name']:{width}}  {version:8} {state} {row['summary']}")
        indent = " " * (width + 2)
        if row.get("variants"):
            how = row.get("fits", {})
            fits = [
                f"{d} {v}".rstrip() + _HOW.get(how.get(d, ""), "")
                for d, v in sorted(row["variants"].items())
            ]
            lines.append(f"{indent}fits: {', '.join(fits)}")
        if row.get("reason"):
            lines.append(f"{indent}{row['state']}: {row['reason']}")
        if verbose:
            lines += [f"{indent}opens: {line}" for line in row.get("opens", [])]
            lines += [f"{indent}does not: {line}" for line in row.get("limits", [])]
    legend = [f"{word}: {text}" for word, text in _LEGEND.items() if word in states]
    if not verbose and any(row.get("opens") or row.get("limits") for row in rows):
        legend.append("patchkit show BUNDLE says what one opens, and what it is known not to do")
    return [*lines, *([""] if legend else []), *legend]


def _show(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    bundle = data["bundle"]
    lines = [f"{style(bundle['name'], 'green')} {bundle['version']}", bundle["summary"], ""]
    lines += [bundle["description"], ""] if bundle["description"] else []
    for key, word in (("requires", "requires"), ("conflicts", "conflicts with")):
        if bundle[key]:
            lines.append(f"{word}: {', '.join(bundle[key])}")
    for target in bundle["targets"]:
        installed = target["installed"] or "not installed"
        lines.append(f"{target['distribution']} (installed: {installed})")
        for variant in target["variants"]:
            mark = style("  fits     ", "green") if variant["fits"] else "           "
            lines.append(f"{mark}{variant['versions']}{_HOW.get(variant['how'] or '', '')}")
            if variant["upstream"]:
                lines.append(f"             no patch needed: {variant['upstream']}")
            if variant["unneeded"]:
                lines.append(f"             nothing to patch: {variant['unneeded']}")
            if variant["made_for"]:
                lines.append(f"             made for {', '.join(variant['made_for'])}")
            if variant["fits"] or verbose:
                lines += _patch_lines(variant["patches"])
    lines += [
        f"paths: {_form(m['form'])} strip {m['strip']}"
        + (f", prefix {m['prefix']}" if m["prefix"] else "")
        for m in bundle["mapping"]
    ]
    if bundle["asserts"]:
        lines.append("assertions:")
        for item in bundle["asserts"]:
            if not item["judged"] and not verbose:
                continue
            within = f" in {item['within']}" if item["within"] else ""
            lines.append(f"  {item['kind']:9} {item['file']}{within}")
            if item["message"]:
                lines.append(f"            or else {item['message']}")
            else:
                lines.append(f"            {item['expects']}")
    profile = bundle["profile"]
    if profile["env"]:
        pairs = " ".join(f"{k}={v}" for k, v in sorted(profile["env"].items()))
        lines.append(f"environment: {pairs}")
    if profile["args"]:
        lines.append(f"arguments: {' '.join(profile['args'])}")
    for kind, names in bundle["caches"].items():
        lines.append(f"sets aside on apply and revert: {kind} {', '.join(names)}")
    return lines


def _patch_lines(patches: list[dict[str, Any]]) -> list[str]:
    lines = []
    for patch in patches:
        lines.append(f"             {patch['path']}")
        for key in ("Description", "Origin", "Author", "Bug", "Forwarded", "Applied-Upstream"):
            value = patch["header"].get(key)
            if value:
                lines.append(f"               {key}: {value.splitlines()[0]}")
        lines += [
            f"               {file['path']} +{file['added']} -{file['removed']}"
            for file in patch["files"]
        ]
    return lines


def _diff(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines: list[str] = []
    for file in data["files"]:
        for line in file["diff"].splitlines():
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            if line.startswith(("+++ ", "--- ", "diff ")):
                colour = ""
            lines.append(style(line, colour) if colour else line)
    return lines


def _lint(data: dict[str, Any], style: Style, verbose: bool) -> list[str]:
    lines = []
    for problem in data["problems"]:
        place = problem["file"] + (f":{problem['line']}" if problem["line"] else "")
        colour = "red" if problem["severity"] == "error" else "yellow"
        word = style(problem["severity"], colour)
        lines.append(f"{place}: {word}: {problem['message']}")
        if problem["hint"]:
            lines.append(f"  hint: {problem['hint']}")
    lines += [
        f"{item['file']}:{item['line']}: "
        + (
            "the body is cut off, or can end in more than one place: left as it is"
            if item["unclear"]
            else f"counted anew: {item['before']} is {item['after']}"
        )
        for item in data["fixed"]
    ]
    lines += [f"wrote {path}" for path in data["written"]]
    errors = sum(1 for p in data["problems"] if p["severity"] == "error")
    warnings = len(data["problems"]) - errors
    found = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    what = [_count(len(data["bundles"]), "bundle")] if data["bundles"] else []
    what += [_count(len(data["patches"]), "patch file")] if data["patches"] else []
    lines.append(
        f"{', '.join(what) or 'nothing'}: " + (found if data["problems"] else "no problem found")
    )
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _shown(value: Any, key: str = "") -> Any:
    """A report with every string safe for a terminal.  A diff stays as it is, since it may
    be piped into another program; a description has lines of its own."""
    if isinstance(value, str):
        return value if key == "diff" else _printable(value, keep="\t\n" * (key == "description"))
    if isinstance(value, dict):
        # The fields of a DEP-3 header may have several lines, too.
        return {
            _shown(name): _shown(item, "description" if key == "header" else name)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_shown(item, key) for item in value]
    return value


def _printable(line: str, keep: str = "\t") -> str:
    """Terminal escapes, line ends and what turns the direction of text are shown as
    escapes, not obeyed."""
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in line)


_RENDERERS: dict[str, Callable[[dict[str, Any], Style, bool], list[str]]] = {
    "apply": _apply,
    "revert": _revert,
    "sync": _sync,
    "recover": _recover,
    "verify": _verify,
    "status": _status,
    "list": _list,
    "show": _show,
    "diff": _diff,
    "lint": _lint,
}
