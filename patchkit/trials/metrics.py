"""Figures out of what a command says: by a regular expression, and as the tools that people
measure with print them.  Pure.

Owns the formats.  Each was read off the code that prints it: SGLang 0.5 (``bench_serving``,
``bench_one_batch``, ``bench_one_batch_server``), ``vllm bench serve``, GenAI-Perf 0.0.16 and
nccl-tests 2.17.  Must not read files.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from patchkit.signals import time_limit

from .record import LARGEST

HIGHER, LOWER = "higher", "lower"


class Figure(NamedTuple):
    """One value of one run."""

    value: float
    unit: str | None = None
    better: str | None = None


Found = dict[str, Figure]


class Pattern(NamedTuple):
    """``--metric``: the last match counts; its first group, if there is one."""

    name: str
    unit: str | None
    better: str | None
    regex: re.Pattern[str]


class Query(NamedTuple):
    """``--metric-json``: a JMESPath into a file, or ``-``, the last JSON object of the output."""

    name: str
    unit: str | None
    better: str | None
    file: str
    path: str


_SPEC = re.compile(
    r"(?P<name>[^\[\]=:]+?)\s*(?:\[(?P<unit>[^\]]*)\])?(?::(?P<better>higher|lower))?=(?P<rest>.+)",
    re.DOTALL,
)
_LOWER_UNITS = {"s", "ms", "us", "µs", "ns", "b", "kb", "mb", "gb", "kib", "mib", "gib", "bytes"}
#: How many signs of a regular expression's subject are looked at, from the end: the last match
#: counts, and a figure stands at the end.
_MOST = 8 * 1024 * 1024
#: Seconds that the search for one figure may take; a plain one goes through that in a tenth.
_SEARCH = 10.0


def parse_pattern(text: str) -> Pattern:
    """``NAME[UNIT]:higher=REGEX``; unit and direction may be left out.  Raises
    :class:`ValueError`, with what is wrong."""
    spec = _SPEC.fullmatch(text)
    if spec is None:
        raise ValueError("write NAME=REGEX, or NAME[UNIT]:higher=REGEX")
    regex = expression(spec["rest"], re.MULTILINE)
    return Pattern(spec["name"], spec["unit"], spec["better"] or direction(spec["unit"]), regex)


def expression(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression.  Raises :class:`ValueError` that says what is wrong."""
    try:
        return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the regular expression is none: {error}") from None


def parse_query(text: str) -> Query:
    """``[NAME[UNIT]:higher=]FILE:JMESPATH``; without a name, the last word of the path."""
    spec = _SPEC.fullmatch(text)
    rest = text if spec is None else spec["rest"]
    file, colon, path = rest.partition(":")
    if not (file and colon and path):
        raise ValueError("write FILE:JMESPATH, or NAME=FILE:JMESPATH")
    import jmespath

    try:
        jmespath.compile(path)
    except (jmespath.exceptions.JMESPathError, RecursionError) as error:
        raise ValueError(f"the JMESPath is none: {str(error).splitlines()[0]}") from None
    words = re.findall(r"\w+", path)
    if spec is None:
        return Query(words[-1] if words else path, None, None, file, path)
    return Query(spec["name"], spec["unit"], spec["better"] or direction(spec["unit"]), file, path)


def direction(unit: str | None) -> str | None:
    """What is better by the unit: more a second, less time and memory; None where it says
    nothing."""
    if unit is None:
        return None
    lowered = unit.lower()
    if lowered.endswith(("/s", "/sec", "/second", "per second")):
        return HIGHER
    return LOWER if lowered in _LOWER_UNITS else None


#: What moves a terminal's cursor, colours, or names its window (ECMA-48).
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_RETURN = re.compile(r"\r+\n?")


def as_seen(output: str) -> str:
    """An output without colours, and with every step of a progress bar on a line of its own, so
    that a pattern that begins with ``^`` finds what stands behind one."""
    if "\x1b" in output:
        output = _ESCAPE.sub("", output)
    return _RETURN.sub("\n", output) if "\r" in output else output


def by_pattern(pattern: Pattern, output: str) -> Figure | None:
    """The last match in a text as a number; None where there is none.

    Raises :class:`TooLong` where the search takes too long: a regular expression may.
    """
    last = None
    with time_limit(_SEARCH):
        for last in pattern.regex.finditer(output[-_MOST:]):  # noqa: B007 - the last one
            pass
    if last is None:
        return None
    value = _number(last[1] if pattern.regex.groups else last[0])
    return None if value is None else Figure(value, pattern.unit, pattern.better)


_ITS_OWN = (ValueError, TypeError, ArithmeticError, RecursionError)


def by_query(query: Query, value: Any) -> Figure | None:
    """What a JMESPath gives, if that is a number."""
    import jmespath

    try:
        found = jmespath.search(query.path, value)
    # The library lets some mistakes of a path come out as they are (a[::0], max_by of two kinds).
    except (jmespath.exceptions.JMESPathError, *_ITS_OWN):
        return None
    if isinstance(found, str):
        found = _number(found)
    if not _is_number(found):
        return None
    return Figure(float(found), query.unit, query.better)


def last_object(output: str) -> Any:
    """The last line that is a JSON object; None where there is none."""
    for line in reversed(output[-_MOST:].splitlines()):
        line = line.strip()
        if line.startswith("{") and line.endswith("}"):
            value = parsed(line)
            if value is not None:
                return value
    return None


def parsed(text: str) -> Any:
    """What a JSON text holds; None where it is none, or nested beyond all measure."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


_A_NUMBER = re.compile(r"[-+]?((?P<commas>\d[\d,]*)\.?\d*|\.\d+)([eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"(\d+|\d{1,3}(,\d{3})+),*")


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    found = _A_NUMBER.search(text)
    if found is None or (found["commas"] and not _THOUSANDS.fullmatch(found["commas"])):
        return None  # 12,5 is twelve and a half to some, and 125 to nobody
    value = float(found[0].replace(",", ""))
    return value if math.isfinite(value) else None


# -- the tools --------------------------------------------------------------------------


def read(tool: str, text: str) -> Found:
    """What a tool's output, or a file that it wrote, says; empty where it says nothing."""
    return READERS[tool](text)


def recognised(output: str) -> Found:
    """The figures of whichever tools' output is in a text."""
    found: Found = {}
    for tool in _BY_THEMSELVES:
        for name, figure in READERS[tool](output).items():
            found.setdefault(name, figure)
    return found


#: Label → the name that the JSON of the same tool has for it, and its unit.
_LABELS = {
    "Benchmark duration (s)": ("duration", "s"),
    "Request throughput (req/s)": ("request_throughput", "req/s"),
    "Request goodput (req/s)": ("request_goodput", "req/s"),
    "Input token throughput (tok/s)": ("input_throughput", "tok/s"),
    "Output token throughput (tok/s)": ("output_throughput", "tok/s"),
    "Peak output token throughput (tok/s)": ("max_output_tokens_per_s", "tok/s"),
    "Total token throughput (tok/s)": ("total_throughput", "tok/s"),
    "Total Token throughput (tok/s)": ("total_throughput", "tok/s"),
    "Successful requests": ("completed", None),
    "Failed requests": ("failed", None),
    "Concurrency": ("concurrency", None),
    "Accept length": ("accept_length", None),
    "Acceptance length": ("spec_decode_acceptance_length", None),
    "Acceptance rate (%)": ("spec_decode_acceptance_rate", "%"),
}
_LINE = re.compile(r"^([A-Z][^:\n]*):[ \t]+(-?[\d.]+)[ \t]*$", re.MULTILINE)
_TIME_LABEL = re.compile(r"(Mean|Median|Max|P[\d.]+) (E2E Latency|E2EL|TTFT|TPOT|ITL) \(ms\)")
_TIMES = {"E2E Latency": "e2e_latency", "E2EL": "e2el", "TTFT": "ttft", "TPOT": "tpot"}
_TIME_KEY = re.compile(r"(mean|median|max|p[\d.]+)_(e2e_latency|e2el|ttft|tpot|itl)_ms")
#: Keys of JSON results → unit.
_KEYS = {
    "duration": "s",
    "request_throughput": "req/s",
    "request_goodput": "req/s",
    "input_throughput": "tok/s",
    "output_throughput": "tok/s",
    "total_throughput": "tok/s",
    "total_token_throughput": "tok/s",
    "max_output_tokens_per_s": "tok/s",
    "concurrency": None,
    "completed": None,
    "failed": None,
    "accept_length": None,
    "spec_decode_acceptance_length": None,
    "spec_decode_acceptance_rate": "%",
    "prefill_latency": "s",
    "prefill_throughput": "tok/s",
    "median_decode_latency": "s",
    "median_decode_throughput": "tok/s",
    "total_latency": "s",
    "overall_throughput": "tok/s",
    "latency": "s",
    "last_ttft": "s",
    "last_gen_throughput": "tok/s",
    "acc_length": None,
    "cache_hit_rate": None,
}
_MORE = {"completed", "accept_length", "acc_length", "cache_hit_rate"}
_MORE |= {"spec_decode_acceptance_length", "spec_decode_acceptance_rate"}


def _known(name: str, value: float, unit: str | None) -> Figure:
    better = HIGHER if name in _MORE else LOWER if name == "failed" else direction(unit)
    return Figure(value, unit, better)


def serving_text(text: str) -> Found:
    """The table that ``sglang.bench_serving`` and ``vllm bench serve`` print, the last of it."""
    start = text.rfind(" Serving Benchmark Result ")
    if start < 0:
        return {}
    found: Found = {}
    for label, number in _LINE.findall(text[start:]):
        value = _number(number)
        time = _TIME_LABEL.fullmatch(label)
        if value is None:
            continue
        if time is not None:
            what = _TIMES.get(time[2], time[2].lower())
            found.setdefault(f"{time[1].lower()}_{what}_ms", Figure(value, "ms", LOWER))
        elif label in _LABELS:
            name, unit = _LABELS[label]
            found.setdefault(name, _known(name, value, unit))
    return found


def results_json(text: str) -> Found:
    """JSON results of ``bench_serving``, ``bench_one_batch`` (JSON lines) and ``vllm bench serve``
    (one object, or lines of them).

    Several lines are several cases: their figures get the case behind the name, as in
    ``total_latency@bs16,in1024,out16``.
    """
    rows = list(_objects(text))
    cases = [_case(row) for row in rows]
    several = len(set(cases)) > 1
    found: Found = {}
    for row, case in zip(rows, cases, strict=True):
        for name, value in row.items():
            timed = _TIME_KEY.fullmatch(name)
            if (timed is None and name not in _KEYS) or not _is_number(value):
                continue
            figure = (
                Figure(float(value), "ms", LOWER)
                if timed
                else _known(name, float(value), _KEYS[name])
            )
            # Of one case the last line counts: the file may hold earlier runs.
            found[f"{name}@{case}" if several and case else name] = figure
    return found


def _case(row: Mapping[str, Any]) -> str:
    keys = (("batch_size", "bs"), ("input_len", "in"), ("output_len", "out"))
    parts = [f"{short}{row[key]}" for key, short in keys if _is_number(row.get(key))]
    rate = row.get("request_rate")
    return ",".join(parts) or (f"rate{rate}" if rate is not None else "")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file: the whole of it, a list in it, or one a line."""
    whole = parsed(text)
    if isinstance(whole, dict):
        yield whole
        return
    if isinstance(whole, list):
        yield from (item for item in whole if isinstance(item, dict))
        return
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            value = parsed(line)
            if isinstance(value, dict):
                yield value


def _is_number(value: Any) -> bool:
    # An int may be one that no float holds.
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


_ONE_BATCH = (
    (
        "prefill",
        re.compile(r"^Prefill\. latency: +([\d.]+) s, throughput: +([\d.]+) token/s", re.MULTILINE),
    ),
    (
        "median_decode",
        re.compile(
            r"^Decode\. +median latency: +([\d.]+) s, median throughput: +([\d.]+) token/s",
            re.MULTILINE,
        ),
    ),
    (
        "total",
        re.compile(r"^Total\. latency: +([\d.]+) s, throughput: +([\d.]+) token/s", re.MULTILINE),
    ),
)
_ONE_BATCH_SERVER = re.compile(
    r"^(latency|input throughput|output throughput|last_ttft|last generation throughput"
    r"|acc_length|cache hit rate): ([\d.]+)(?: (?:s|tok/s))? *$",
    re.MULTILINE,
)
_SERVER_NAMES = {"last generation throughput": "last_gen_throughput"}


def one_batch_text(text: str) -> Found:
    """What ``sglang.bench_one_batch`` (and its ``_server``) prints; of several cases, and of
    the warm-up before them, the last one."""
    found: Found = {}
    for name, pattern in _ONE_BATCH:
        rows = pattern.findall(text)
        if rows:
            throughput = "overall_throughput" if name == "total" else f"{name}_throughput"
            figures = {f"{name}_latency": ("s", LOWER), throughput: ("tok/s", HIGHER)}
            for (key, (unit, better)), cell in zip(figures.items(), rows[-1], strict=True):
                value = _number(cell)
                if value is not None:
                    found[key] = Figure(value, unit, better)
    if "input throughput: " in text and "batch size: " in text:
        for label, number in _ONE_BATCH_SERVER.findall(text[text.rindex("batch size: ") :]):
            name = _SERVER_NAMES.get(label, label.replace(" ", "_"))
            value = _number(number)
            if value is not None:
                found[name] = _known(name, value, _KEYS[name])
    return found


_STATISTICS = ("avg", "p50", "p90", "p95", "p99", "min", "max")


def genai_perf(text: str) -> Found:
    """GenAI-Perf's ``*_genai_perf.json`` or ``.csv``: figures are named ``METRIC_STATISTIC``,
    those that are one value for the whole run just ``METRIC``."""
    if text.lstrip().startswith("{"):
        return _genai_json(text)
    found: Found = {}
    header: list[str] = []
    for row in _rows(text):
        if row[:1] == ["Metric"]:
            header = row
        elif not row:
            header = []
        elif header and len(row) == len(header):
            name, unit = _genai_name(row[0])
            for statistic, cell in zip(header[1:], row[1:], strict=True):
                value = _number(cell)
                if value is None:
                    continue
                if statistic == "Value":
                    found[name] = _genai(name, value, unit)
                elif statistic in _STATISTICS:
                    found[f"{name}_{statistic}"] = _genai(name, value, unit)
    return found


def _rows(text: str) -> Iterator[list[str]]:
    """The rows of a CSV file, up to one that is none."""
    with suppress(csv.Error):
        yield from csv.reader(text.splitlines())


def _genai_json(text: str) -> Found:
    value = parsed(text)
    if not isinstance(value, dict) or "input_config" not in value:
        return {}
    found: Found = {}
    for name, item in value.items():
        if not isinstance(item, dict) or not isinstance(item.get("unit"), str):
            continue
        statistics = [key for key in _STATISTICS if _is_number(item.get(key))]
        for key in statistics:
            full = name if statistics == ["avg"] else f"{name}_{key}"
            found[full] = _genai(name, float(item[key]), item["unit"])
    return found


def _genai_name(label: str) -> tuple[str, str | None]:
    words = re.fullmatch(r"(.*?)(?: \(([^)]*)\))?", label)
    assert words is not None
    return words[1].strip().lower().replace(" ", "_"), words[2]


def _genai(name: str, value: float, unit: str | None) -> Figure:
    if "throughput" in name or "goodput" in name:
        return Figure(value, unit, HIGHER)
    return Figure(value, unit, direction(unit) if "sequence" not in name else None)


_NUMBER = r"(?:[\d.]+(?:e[+-]?\d+)?|N/A|nan|inf)"
_NCCL_ROW = re.compile(
    rf"^ *(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)((?: +{_NUMBER})+)(?: +\d{{4}}-.*)?$", re.MULTILINE
)
_NCCL_AVERAGE = re.compile(r"^# Avg bus bandwidth +: ([\d.e+-]+)", re.MULTILINE)
_NCCL_WRONG = re.compile(r"^# Out of bounds values +: (\d+)", re.MULTILINE)


def nccl_tests(text: str) -> Found:
    """The table of ``all_reduce_perf`` and its like: time and bus bandwidth for each size in
    bytes, out of place and in place (``inplace_…``); and the average."""
    average = _number((_NCCL_AVERAGE.findall(text) or [None])[-1])
    if average is None:
        return {}
    found: Found = {"avg_busbw": Figure(average, "GB/s", HIGHER)}
    wrong = _NCCL_WRONG.findall(text)
    if wrong:
        found["out_of_bounds"] = Figure(float(wrong[-1]), None, LOWER)
    for size, _, _, _, _, rest in _NCCL_ROW.findall(text):
        cells = rest.split()
        # time, algbw, busbw, #wrong; with per-iteration timing four more; twice.
        half = len(cells) // 2
        if len(cells) not in (8, 16):
            continue
        for prefix, start in (("", 0), ("inplace_", half)):
            time, busbw = _number(cells[start]), _number(cells[start + 2])
            if time is not None:
                found[f"{prefix}time@{size}"] = Figure(time, "us", LOWER)
            if busbw is not None:
                found[f"{prefix}busbw@{size}"] = Figure(busbw, "GB/s", HIGHER)
    return found


def _either(*readers: Callable[[str], Found]) -> Callable[[str], Found]:
    def read_any(text: str) -> Found:
        for reader in readers:
            found = reader(text)
            if found:
                return found
        return {}

    return read_any


READERS: dict[str, Callable[[str], Found]] = {
    "sglang-serving": _either(serving_text, results_json),
    "sglang-one-batch": _either(one_batch_text, results_json),
    "vllm-serve": _either(serving_text, results_json),
    "genai-perf": genai_perf,
    "nccl-tests": nccl_tests,
}
#: Those whose output is known for what it is.
_BY_THEMSELVES = ("sglang-serving", "sglang-one-batch", "nccl-tests")
