"""``trial`` on the command line: run, ab, list, show, verdict, rm and export."""

from __future__ import annotations

import getpass
import math
import os
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from patchkit.console import Settings, finish, working_directory
from patchkit.errors import PatchkitError, Refused, UsageError
from patchkit.options import bundles_option, common_options, complete_bundle, while_running_option
from patchkit.session import Options, Report, Session
from patchkit.signals import held

from . import again, views
from .deadends import ledger_of
from .ledger import Ledger
from .record import GRACE, KINDS, READY_TIMEOUT, STATUSES, VERDICTS, Trial, Verdict, as_json
from .views import trials_option

F = TypeVar("F", bound=Callable[..., Any])


@click.group(short_help="Measured runs of a command under a bundle set, and what was learned.")
def trial() -> None:
    """One change, one run, one verdict, nothing left behind.

    \b
    Examples:
      patchkit trial run --name tree --bundle nccl-tree -- python bench.py {args}
      patchkit trial verdict tree dead-end --reason "slower" --unblock 'nvlink == "true"'
    """


def _complete_trial(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """The names of the ledger's trials."""
    from click.shell_completion import CompletionItem

    values = ctx.find_root().params
    try:
        options = Options(
            *(values.get("python"), values.get("root"), values.get("bundles")),
            environ=os.environ,
            cwd=working_directory(),
        )
        listed = ledger_of(Session(options), ctx.params.get("place")).list()
    except (PatchkitError, OSError):
        return []
    names = dict.fromkeys(one.name for one in listed.trials)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


# -- run and ab -------------------------------------------------------------------------


def _finite(context: click.Context, option: click.Parameter, value: float) -> float:
    """What a number of seconds cannot be, although it is a float."""
    if not math.isfinite(value):
        raise click.BadParameter("it is no number of seconds", ctx=context, param=option)
    return value


def _running_options(command: F) -> F:
    """What run and ab have in common."""
    for option in reversed(
        (
            click.option("--name", required=True, help="What the trial is called."),
            click.option("--goal", help="What it is for."),
            click.option(
                "--only",
                is_flag=True,
                help="A set is exactly the bundles named; else they are added to what is applied.",
            ),
            click.option(
                "--env",
                "given",
                multiple=True,
                metavar="NAME=VALUE",
                help="A variable for the command, over those of the bundles.",
            ),
            click.option(
                "--append-args",
                is_flag=True,
                help="Put the bundles' launch arguments behind the command, not at {args}.",
            ),
            click.option(
                "--repeat",
                metavar="R",
                type=click.IntRange(1, 1000),
                default=None,
                help="Run so many times: 1 for run; for ab each set, 5.",
            ),
            click.option(
                "--measure",
                metavar="COMMAND",
                help="Run this once the command is ready, in words as a shell takes them apart;"
                " then end the command.",
            ),
            click.option(
                "--ready-url", metavar="URL", help="The command is ready when this gives 2xx."
            ),
            click.option(
                "--ready-pattern",
                metavar="REGEX",
                help="The command is ready when a line of its output matches.",
            ),
            click.option(
                "--ready-timeout",
                metavar="SECONDS",
                type=click.FloatRange(min=0, min_open=True),
                callback=_finite,
                default=READY_TIMEOUT,
                show_default=True,
                help="How long it may take until then.",
            ),
            click.option(
                "--grace",
                metavar="SECONDS",
                type=click.FloatRange(min=0),
                callback=_finite,
                default=GRACE,
                show_default=True,
                help="From SIGTERM to SIGKILL.",
            ),
            click.option(
                "--metric",
                "patterns",
                multiple=True,
                metavar="NAME[UNIT]=REGEX",
                help="A figure: the last match in the output, or its first group. NAME may be"
                " followed by [UNIT] in brackets, and by :higher or :lower, which is better.",
            ),
            click.option(
                "--metric-json",
                "queries",
                multiple=True,
                metavar="[NAME=]FILE:JMESPATH",
                help="A figure out of a JSON file that the command writes; FILE - is the last"
                " line of the output that is a JSON object.",
            ),
            click.option(
                "--read",
                "files",
                multiple=True,
                metavar="TOOL[:FILE]",
                help="All figures of sglang-serving, sglang-one-batch, vllm-serve, genai-perf or"
                " nccl-tests, out of a file or the output.",
            ),
            while_running_option,
            trials_option,
            common_options,
            click.argument("command", nargs=-1, type=click.UNPROCESSED),
            click.pass_obj,
        )
    ):
        command = option(command)
    return command


@trial.command(
    short_help="Apply bundles, run a command, put everything back.",
    context_settings={"allow_interspersed_args": False},
)
@bundles_option("A bundle to try; may be given more than once.")
@click.option("--keep", is_flag=True, help="Leave the bundles applied at the end.")
@_running_options
def run(
    settings: Settings, bundles: tuple[str, ...], keep: bool, command: tuple[str, ...], **rest: Any
) -> int:
    """Apply the bundles, verify, run COMMAND with their variables and launch arguments, and put
    back what was applied before, whatever happens in between.  The exit code is the command's.

    The word {args} of COMMAND is replaced by the bundles' launch arguments.  A server is ready
    by --ready-url or --ready-pattern, measured by --measure, and ended then.

    \b
    Examples:
      patchkit trial run --name graph --bundle fewer-graphs -- python bench.py
      patchkit trial run --name tree --bundle nccl-tree --ready-url http://127.0.0.1:30000/health
        --measure 'python -m sglang.bench_serving --backend sglang'
        -- python -m sglang.launch_server {args}
    """
    from .sets import asked

    repeat = rest.pop("repeat") or 1
    settings.command = "trial run"
    return _conduct(
        settings, command, {"candidate": asked(bundles), "keep": keep, "repeat": repeat}, rest
    )


@trial.command(
    short_help="Run a command with and without a change, in turn, and compare.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--baseline",
    multiple=True,
    metavar="BUNDLE|NAME=VALUE",
    shell_complete=complete_bundle,
    help="A bundle or a variable of the baseline. Else what is applied now.",
)
@click.option(
    "--candidate",
    multiple=True,
    required=True,
    metavar="BUNDLE|NAME=VALUE",
    shell_complete=complete_bundle,
    help="A bundle or a variable of the candidate; may be given more than once.",
)
@click.option(
    "--confounded", is_flag=True, help="Compare although more than one thing differs; say so."
)
@_running_options
def ab(
    settings: Settings,
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    confounded: bool,
    command: tuple[str, ...],
    **rest: Any,
) -> int:
    """Run COMMAND under two sets in turn (A B B A …), switching between the runs, and say whether
    they differ beyond the noise: by an exact randomisation test, which calls a difference real
    in at most 5 % of the cases where there is none.  It takes four runs of each to call any.

    \b
    Example:
      patchkit trial ab --name tree --candidate nccl-tree --repeat 5
        --metric 'speed[tok/s]=Output token throughput.*: +([0-9.]+)' -- ./bench.sh {args}
    """
    from .sets import asked

    settings.command = "trial ab"
    own = {
        "baseline": asked(baseline),
        "candidate": asked(candidate),
        "confounded": confounded,
        "repeat": rest.pop("repeat") or 5,
    }
    return _conduct(settings, command, own, rest)


def _conduct(
    settings: Settings, command: tuple[str, ...], own: dict[str, Any], rest: dict[str, Any]
) -> int:
    from patchkit.launch.profile import pairs

    from . import deadends
    from .metrics import expression
    from .running import Ready
    from .screen import Terminal
    from .trial import Wishes, conduct

    options = settings.options
    options.while_running = rest["while_running"]
    if not command:
        raise UsageError("there is no command to run", hint="patchkit trial run … -- COMMAND …")
    pattern = None
    if rest["ready_pattern"] is not None:
        try:
            pattern = expression(rest["ready_pattern"])
        except ValueError as error:
            raise UsageError(f"--ready-pattern: {error}", hint="quote what is special") from None
    ready = Ready(_url(rest["ready_url"]), pattern, rest["ready_timeout"])
    measure = None if rest["measure"] is None else _words(rest["measure"])
    if measure is not None and not ready.is_asked:
        raise UsageError(
            "--measure needs --ready-url or --ready-pattern: when is it to begin?",
            hint="patchkit trial run --help",
        )
    wishes = Wishes(
        name=rest["name"],
        command=command,
        only=rest["only"],
        measure=measure,
        append_args=rest["append_args"],
        given=pairs(rest["given"], "trial run"),
        ready=ready,
        grace=rest["grace"],
        wanted=_wanted(rest["patterns"], rest["queries"], rest["files"]),
        goal=rest["goal"],
        **own,
    )
    screen = Terminal(settings)
    ledger = ledger_of(Session(options), rest["place"])

    def warn(planned: Trial) -> dict[str, Any] | None:
        key, about = planned.sets["candidate"].key, deadends.settings_of(planned)
        found = deadends.warning(deadends.last_verdict(ledger, key, about))
        if found is not None:
            screen.say(deadends.line(found))
        return found

    with held(last=True) as signals:
        options.signals = signals
        report = conduct(options, wishes, ledger, screen, warn)
        signals.done = True
        report.render = lambda data, style, verbose: _told(data["trial"], verbose=verbose)
        return finish(settings, report)


def _url(text: str | None) -> str | None:
    """An address that can be asked; else the wait for it would be in vain."""
    from urllib.parse import urlsplit

    if text is None:
        return None
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isprintable() or " " in text:
        raise UsageError(
            f"--ready-url {text} is no http:// or https:// address",
            hint="for example --ready-url http://127.0.0.1:30000/health",
        )
    return text


def _words(text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--measure: {error}", hint="quote it as for a shell") from None
    if not words:
        raise UsageError("--measure is empty", hint="patchkit trial run --help")
    return tuple(words)


def _wanted(patterns: tuple[str, ...], queries: tuple[str, ...], files: tuple[str, ...]) -> Any:
    from .figures import Texts, Wanted
    from .metrics import READERS, parse_pattern, parse_query

    def parsed(option: str, texts: tuple[str, ...], parse: Callable[[str], Any]) -> tuple[Any, ...]:
        found = []
        for text in texts:
            try:
                found.append(parse(text))
            except ValueError as error:
                raise UsageError(
                    f"{option} {text}: {error}", hint="patchkit trial run --help"
                ) from None
        return tuple(found)

    def tool(text: str) -> tuple[str, str]:
        name, _, file = text.partition(":")
        if name not in READERS:
            raise ValueError(f"no tool of that name is known: {', '.join(READERS)}")
        return name, file or "-"

    return Wanted(
        parsed("--metric", patterns, parse_pattern),
        parsed("--metric-json", queries, parse_query),
        parsed("--read", files, tool),
        Texts(patterns, queries, files),
    )


def _force_option(command: F) -> F:
    return click.option(
        "--force",
        is_flag=True,
        help="Even of a trial that is under way as its record says: its environment may be gone.",
    )(command)


def _not_running(found: Trial, *, force: bool) -> None:
    """A trial that is under way writes its record again, and what was written meanwhile is
    lost."""
    if found.status == "running" and not force:
        raise Refused(
            f"{found.id} is under way",
            code="running",
            hint="wait for it to end; if it died, patchkit recover finishes it; where its"
            " environment is gone: --force",
        )


# -- the ledger -------------------------------------------------------------------------


def _ledger(settings: Settings, place: str | None) -> Ledger:
    return ledger_of(Session(settings.options), place)


@trial.command("list", short_help="The trials, in the order tried.")
@click.option("--verdict", type=click.Choice([*VERDICTS, "none"]), help="Only those.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@click.option("--kind", type=click.Choice(KINDS), help="Only those.")
@click.option("--bundle", help="Only those with this bundle.")
@trials_option
@common_options
@click.pass_obj
def list_(
    settings: Settings,
    verdict: str | None,
    status: str | None,
    kind: str | None,
    bundle: str | None,
    place: str | None,
) -> int:
    """The trials of the ledger, in the order tried, one a line.

    \b
    Example:
      patchkit trial list --verdict dead-end
    """
    settings.command = "trial list"
    ledger = _ledger(settings, place)
    listed = ledger.list()
    rows = []
    for one in listed.trials:
        given = one.verdict.verdict if one.verdict else "none"
        names = {use.name for side in one.sets.values() for use in side.bundles}
        if verdict not in (None, given) or status not in (None, one.status):
            continue
        if kind not in (None, one.kind) or (bundle is not None and bundle not in names):
            continue
        rows.append(_row(one))
    report = Report(
        "trial list",
        {
            "ledger": ledger.folder,
            "trials": rows,
            "problems": [problem.as_dict() for problem in listed.problems],
        },
        exit_code=1 if listed.problems else 0,
        notes=[problem.message for problem in listed.problems],
        render=lambda data, style, verbose: _table(data["trials"]),
    )
    return finish(settings, report)


def _row(one: Trial) -> dict[str, Any]:
    from .statistics import median

    candidate = one.sets.get("candidate")
    figures = {}
    for name in dict.fromkeys(key for run in one.runs for key in run.values):
        values = [
            run.values[name] for run in one.runs if run.set == "candidate" and name in run.values
        ]
        if values:
            figures[name] = median(values)
    return {
        "id": one.id,
        "name": one.name,
        "kind": one.kind,
        "status": one.status,
        "started": one.started,
        "bundles": [use.name for use in candidate.bundles] if candidate else [],
        "verdict": one.verdict.verdict if one.verdict else None,
        "reason": one.verdict.reason if one.verdict else None,
        "runs": len(one.runs),
        "figures": figures,
    }


def _table(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["no trials"]
    lines = []
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        first = next(iter(row["figures"].items()), None)
        figure = "" if first is None else f"  {first[0]} {first[1]:g}"
        verdict = row["verdict"] or "-"
        reason = f"  {row['reason']}" if row["reason"] else ""
        day = (row["started"] or "")[:10] or "-"
        lines.append(
            f"{row['id'][-6:]}  {day:10}  {row['name']:{width}}  {row['status']:11}"
            f"  {verdict:12}{figure}{reason}".rstrip()
        )
    return lines


@trial.command(short_help="What is known of a trial.")
@click.argument("which", metavar="TRIAL", shell_complete=_complete_trial)
@trials_option
@common_options
@click.pass_obj
def show(settings: Settings, which: str, place: str | None) -> int:
    """What is known of a trial, by its name (the latest of that name), its id, or the beginning
    or the last six digits of that.

    \b
    Example:
      patchkit trial show tree
    """
    settings.command = "trial show"
    ledger = _ledger(settings, place)
    found = ledger.find(which)
    value = as_json(found)
    again_, missing = (
        again.command(value, views.here(settings.options, place)),
        again.hides(value),
    )
    report = Report(
        "trial show",
        {
            "ledger": ledger.folder,
            "record": ledger.path(found.id),
            "trial": value,
            "again": again_,
            "hidden": missing,
        },
        render=lambda data, style, verbose: [
            *_told(data["trial"], verbose=True),
            *(f"{label}: {text}" for label, text in views.again_lines(again_, missing)),
        ],
    )
    return finish(settings, report)


def _told(one: dict[str, Any], *, verbose: bool) -> list[str]:
    """A trial for a person; ``verbose`` with what is needed to run it again."""
    lines = [f"{one['name']}: {one['status']}  ({one['id']})"]
    if one["goal"]:
        lines.append(f"goal: {one['goal']}")
    for side, use in one["sets"].items():
        names = ", ".join(f"{b['name']} {b['version'] or ''}".rstrip() for b in use["bundles"])
        lines.append(f"{side}: {names or 'no bundles'}")
        pairs_ = " ".join(f"{key}={value}" for key, value in use["environ"].items())
        # The settings may be all that tells the two apart.
        lines += (
            [f"  environment: {pairs_}"] if pairs_ and (verbose or len(one["sets"]) > 1) else []
        )
        lines += (
            [f"  arguments: {shlex.join(use['arguments'])}"] if use["arguments"] and verbose else []
        )
    if one["confounded"]:
        lines.append(f"confounded: {one['confounded']}")
    if verbose:
        lines.append(f"command: {shlex.join(one['command'])}")
        lines += [f"measured by: {shlex.join(one['measure'])}"] if one["measure"] else []
        if one["repository"]:
            came = one["repository"]
            dirty = "" if came["clean"] else ", with changes that are not committed"
            lines.append(f"from: {came['path']} at {came['commit'] or 'no commit'}{dirty}")
    for number, run_ in enumerate(one["runs"], start=1):
        values = ", ".join(_figure(name, value, one) for name, value in run_["values"].items())
        seconds = "" if run_["seconds"] is None else f", {run_['seconds']:g} s"
        memory = run_["peak_memory_bytes"]
        peak = "" if memory is None else f", largest process {memory / 1048576:.0f} MiB"
        lines.append(
            f"run {number} ({run_['set']}): exit {run_['exit']}{seconds}{peak}"
            + (f": {values}" if values else "")
        )
    for name, compared in (one["comparison"] or {}).items():
        lines.append(_comparison(name, compared, one))
    if one["verdict"]:
        given = one["verdict"]
        lines.append(f"verdict: {given['verdict']}")
        lines += [f"  {key}: {given[key]}" for key in ("reason", "cause", "unblock") if given[key]]
    return lines


def _figure(name: str, value: float, one: dict[str, Any]) -> str:
    unit = one["metrics"].get(name, {}).get("unit")
    return f"{name} {value:g}" + (f" {unit}" if unit else "")


def _comparison(name: str, compared: dict[str, Any], one: dict[str, Any]) -> str:
    text: str = f"{name}: median {compared['baseline']:g} becomes {compared['candidate']:g}"
    if compared["ratio"] is not None:
        text += f", ratio {compared['ratio']:.3f}"
    if compared["interval"] is not None:
        low, high = compared["interval"]
        text += f" ({compared['confidence']:.0%} interval {low:.3f} to {high:.3f})"
    if not compared["beyond_noise"]:
        few = "; it takes four runs of each to tell" if min(compared["n"]) < 4 else ""
        return f"{text}: within the noise{few}"
    better = one["metrics"].get(name, {}).get("better")
    more = compared["candidate"] > compared["baseline"]
    word = (
        "a difference" if better is None else "better" if more == (better == "higher") else "worse"
    )
    return f"{text}: {word}, beyond the noise (p = {compared['p']:.3g})"


@trial.command("verdict", short_help="Say what was learned from a trial.")
@click.argument("which", metavar="TRIAL", shell_complete=_complete_trial)
@click.argument("given", metavar="VERDICT", type=click.Choice(VERDICTS))
@click.option("--reason", help="What was seen.")
@click.option("--cause", help="Why it is so.")
@click.option(
    "--unblock",
    metavar="EXPRESSION",
    help="What would make it worth another look: a condition over the facts of the machine.",
)
@click.option("--by", help="Who says so. Else the user.")
@_force_option
@trials_option
@common_options
@click.pass_obj
def verdict_(
    settings: Settings,
    which: str,
    given: str,
    reason: str | None,
    cause: str | None,
    unblock: str | None,
    by: str | None,
    force: bool,
    place: str | None,
) -> int:
    """Say what was learned from a trial: baseline, win, loss, dead-end, inconclusive or
    unavailable.  A later verdict takes the place of an earlier one.

    \b
    Example:
      patchkit trial verdict fusion dead-end --reason 'no kernel' --unblock 'cuda >= "13"'
    """
    from .ledger import judged
    from .revisit import holds

    settings.command = "trial verdict"
    if unblock is not None:
        from patchkit.conditions import parse

        parse(unblock)
    ledger = _ledger(settings, place)
    found = ledger.find(which)
    _not_running(found, force=force)
    changed = judged(found, Verdict(given, reason, cause, unblock, None, by or _user()))
    ledger.write(changed)
    notes = []
    if unblock is not None and holds(unblock, found.facts) is True:
        notes.append(
            "the condition holds already with the facts that the trial has, so trial revisit will"
            " not name it"
        )
    report = Report(
        "trial verdict",
        {"record": ledger.path(found.id), "trial": as_json(changed)},
        changed=True,
        notes=notes,
        render=lambda data, style, verbose: [f"{found.name}: {given}"],
    )
    return finish(settings, report)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return None


@trial.command("rm", short_help="Remove trials from the ledger.")
@click.argument("which", metavar="TRIAL…", nargs=-1, required=True, shell_complete=_complete_trial)
@_force_option
@trials_option
@common_options
@click.pass_obj
def remove(settings: Settings, which: tuple[str, ...], force: bool, place: str | None) -> int:
    """Remove trials and their logs from the ledger.  All are found before one is removed.

    \b
    Example:
      patchkit trial rm 1f0c3a
    """
    settings.command = "trial rm"
    ledger = _ledger(settings, place)
    found = [ledger.find(one) for one in which]
    for one in found:
        _not_running(one, force=force)
    for one in found:
        ledger.remove(one.id)
    report = Report(
        "trial rm",
        {"removed": [one.id for one in found]},
        changed=True,
        render=lambda data, style, verbose: [f"removed {one}" for one in data["removed"]],
    )
    return finish(settings, report)


@trial.command("export", short_help="The ledger as one table (JSON or CSV), or as MLflow runs.")
@click.option(
    "--format", "form", type=click.Choice(["json", "csv"]), default="json", show_default=True
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Else standard output.")
@click.option(
    "--mlflow",
    "uri",
    metavar="URI",
    help="Write MLflow runs instead: sqlite:///mlflow.db, or a server's address.",
)
@click.option(
    "--experiment",
    metavar="NAME",
    default="patchkit",
    show_default=True,
    help="MLflow's experiment.",
)
@trials_option
@common_options
@click.pass_obj
def export(
    settings: Settings,
    form: str,
    output: str | None,
    uri: str | None,
    experiment: str,
    place: str | None,
) -> int:
    """Every run of every trial: as one JSON list of the records, or as CSV with one row for each
    figure of each run, which spreadsheets and data frames read as it is.

    With --mlflow (the extra `mlflow`) as MLflow runs: bundles and facts are parameters, the
    verdict is tags, each run's figures are the steps of a metric, the record is an artifact. A
    trial that is there already gets its verdict anew, and nothing else.

    \b
    Examples:
      patchkit trial export --format csv --output trials.csv
      patchkit trial export --mlflow sqlite:///mlflow.db
    """
    from .exporting import as_csv, as_list, write

    settings.command = "trial export"
    ledger = _ledger(settings, place)
    if uri is not None:
        if output is not None:
            raise UsageError("--mlflow writes no file", hint="leave out --output")
        return views.to_mlflow(settings, ledger, uri, experiment)
    listed = ledger.list()
    text = as_list(listed.trials) if form == "json" else as_csv(listed.trials)
    if output is not None:
        write(settings.options.cwd, output, text)
    report = Report(
        "trial export",
        {
            "ledger": ledger.folder,
            "format": form,
            "output": output,
            "trials": len(listed.trials),
            **({"text": text} if output is None else {}),
        },
        exit_code=1 if listed.problems else 0,
        notes=[problem.message for problem in listed.problems],
        render=lambda data, style, verbose: (
            [text.rstrip("\n")] if output is None else [f"wrote {output}"]
        ),
    )
    return finish(settings, report)


trial.add_command(views.revisit)
trial.add_command(views.report)
