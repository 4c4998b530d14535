"""How a report says figures, ratios and conditions.  Pure."""

from __future__ import annotations

from patchkit.trials.board import Board, Metric, Row

HOLDS = {True: "holds here now", False: "does not hold here", None: "not known here"}


def number(value: float) -> str:
    """A figure with four digits that count, and no more.

    >>> number(82.0), number(89.512), number(0.00012345), number(123456.7)
    ('82', '89.51', '0.0001234', '123457')
    """
    if abs(value) >= 10_000:
        return f"{value:.0f}"
    text = f"{value:.4g}"
    return f"{value:.10f}".rstrip("0").rstrip(".") if "e" in text and value else text


def figure(row: Row, metric: Metric | None) -> str:
    """The median of a trial's runs, with its unit; a dash where it has none."""
    if row.figure is None:
        return "–"
    unit = f" {metric.unit}" if metric is not None and metric.unit else ""
    return number(row.figure) + unit


def percent(ratio: float) -> str:
    """A ratio as a change: ``+9.1 %``.

    >>> percent(89.5 / 82), percent(60 / 82), percent(1.0)
    ('+9.1 %', '\u221226.8 %', '\u00b10.0 %')
    """
    change = round((ratio - 1) * 100, 1)
    sign = "±" if change == 0 else "+" if change > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(change):.1f} %"


def against(row: Row) -> str:
    """The change against the baseline, and which that is; empty where there is none."""
    return "" if row.ratio is None else f"{percent(row.ratio)} {base(row)}"


def base(row: Row) -> str:
    """What a trial's figure is held against; empty where there is nothing."""
    return "" if row.ratio is None or row.base is None else f"against {number(row.base)}"


def noise(row: Row) -> str:
    """The interval of the ratio, and whether it leaves the noise."""
    if row.interval is None:
        return ""
    low, high = row.interval
    beyond = {True: ", beyond the noise", False: ", within the noise", None: ""}
    return f"{percent(low)} to {percent(high)}{beyond[row.beyond_noise]}"


def spread(row: Row) -> str:
    """How many runs there were, and between which figures they lay."""
    if not row.figures:
        return ""
    if len(row.figures) == 1:
        return "1 run"
    return f"{len(row.figures)} runs, {number(min(row.figures))} to {number(max(row.figures))}"


def tried(row: Row) -> str:
    """The bundles and settings of a trial."""
    return " ".join((*row.bundles, *row.settings))


def machine(board: Board) -> str:
    """The machine of the trials, in one line; empty where no trial says."""
    facts = board.machine
    gpus = facts.get("gpu", "")
    if gpus and facts.get("gpus", "1") != "1":
        gpus = f"{facts['gpus']} × {gpus}"
    parts = [
        gpus,
        f"SM{facts['sm'].replace('.', '')}" if "sm" in facts else "",
        f"PCIe Gen{facts['pcie-gen']}" if "pcie-gen" in facts else "",
        {"true": "NVLink", "false": "no NVLink"}.get(facts.get("nvlink", ""), ""),
        f"driver {facts['driver']}" if "driver" in facts else "",
        f"CUDA toolkit {facts['cuda']}" if "cuda" in facts else "",
        *(f"{name} {facts[name]}" for name in ("torch", "sglang", "vllm", "flashinfer-python")
          if name in facts),
    ]  # fmt: skip
    return ", ".join(part for part in parts if part)


def title(board: Board) -> str:
    """The heading of a report."""
    count = len(board.rows)
    return f"What was tried: {count} {'trial' if count == 1 else 'trials'}"
