"""Geometry of the report's charts: positions in per cent, points in SVG units, never a pixel.

Bars are drawn by the template as HTML, so that their labels keep a readable size on a phone;
only the timeline and the samples are SVG.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from etprof.analysis.split.operators import GROUPS, OperatorRow, class_times, group_of
from etprof.backends.backend import OperatorClass
from etprof.base.units import (
    format_count,
    format_duration,
    format_number,
    format_share,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.operators import OperatorSplit, OverheadRow
    from etprof.run.directory import BlockMetrics
    from etprof.tables.table import Table, Value

View = dict[str, Any]


class Bar(NamedTuple):
    """Where a bar stands and how long it is, in per cent, and its CSS class."""

    offset: str
    width: str
    colour: str


_COLOURS: Final = {name: f"c{number}" for number, name in enumerate(GROUPS)}
_LEAST_TEXT_PERCENT: Final = 9.0
_POINTS_A_BLOCK: Final = 150
_CHANGE_STEPS: Final = (0.05, 0.2, 0.5)
_LARGE_EXPONENT: Final = 5
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CHART_WIDTH, _CHART_HEIGHT = 1000.0, 200.0


class _LogScale:
    """A logarithmic axis of times."""

    def __init__(self, low: float, high: float) -> None:
        # A clock that stood still has no logarithm.
        self.low = max(low, 1.0)
        self.high = max(high, self.low * 1.01)

    def share(self, value: float) -> float:
        """Where a time stands between the ends, 0 to 1; beyond them, below or above that."""
        return math.log(max(value, 1e-9) / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[str]:
        """Both ends and the middle, the lowest first."""
        return [
            format_duration(self.low * (self.high / self.low) ** share) for share in (0, 0.5, 1)
        ]


def _upper_end(groups: Iterable[Sequence[float]]) -> float:
    """Returns the largest of all values that are not far above the others of their group.

    Far is above the median by ten times the median absolute deviation and by 10 %. At most one
    value in twenty is left out, so that a group of two levels is seen whole.
    """
    ends: list[float] = []
    for values in groups:
        median = float(np.median(values))
        deviation = float(np.median(np.abs(np.asarray(values, float) - median)))
        highest = float(np.percentile(values, 95, method="lower"))
        limit = max(median + 10 * deviation, median * 1.1, highest)
        ends.append(max(float(value) for value in values if value <= limit))
    return max(ends)


def colour_of(group: str) -> str:
    """Returns the CSS class that colours a group."""
    return _COLOURS[group]


def row_colours(table: Table) -> list[str]:
    """The colour of each row that has a category; empty for the others."""
    names = table.names
    if names[0] == "group":
        return [_COLOURS.get(str(row[0]), "") for row in table.rows]
    if not {"category", "class"} <= set(names):
        return [""] * len(table.rows)
    classes = [(row[names.index("category")], row[names.index("class")]) for row in table.rows]
    return [
        colour_of(group_of(OperatorClass(str(category), str(finer)))) if finer else ""
        for category, finer in classes
    ]


def category_stacks(experiments: Sequence[ExperimentAnalysis]) -> View | None:
    """Stacked bars of all experiments on one scale; a table has the same figures; None untimed."""
    totals = {e.name: _group_means(e.split) for e in experiments if e.split.times}
    if not totals:
        return None
    longest = max(math.fsum(means.values()) for means in totals.values()) or 1.0
    used = [group for group in GROUPS if any(means[group] > 0 for means in totals.values())]
    return {
        "legend": [{"name": group, "colour": colour_of(group)} for group in used],
        "bars": [
            {
                "name": name,
                "total": format_duration(math.fsum(means.values())),
                "parts": [_stack_part(g, means, longest) for g in used if means[g] > 0],
            }
            for name, means in totals.items()
        ],
    }


def _group_means(split: OperatorSplit) -> dict[str, float]:
    means = dict.fromkeys(GROUPS, 0.0)
    for operator_class, times in class_times(split).items():
        means[group_of(operator_class)] += times.mean_ns
    return means


def _stack_part(group: str, means: dict[str, float], longest: float) -> View:
    # A clock that stood still has no time to share out.
    width = means[group] / (longest or 1.0) * 100
    share = format_share(means[group] / (math.fsum(means.values()) or 1.0))
    return {
        "colour": colour_of(group),
        "width": f"{width:.3f}",
        "text": share if width >= _LEAST_TEXT_PERCENT else "",
        "title": f"{group}: {format_duration(means[group])}, {share}",
    }


def waterfall_bars(steps: Table) -> list[Bar]:
    """A bar for each row between the totals, each from where the last one ended."""
    records = steps.records()
    first, last = float(records[0]["baseline_ns"] or 0), float(records[-1]["candidate_ns"] or 0)
    return step_bars(first, [float(record["delta_ns"] or 0) for record in records[1:-1]], last)


def step_bars(first: float, steps: Sequence[float], last: float) -> list[Bar]:
    """Two totals, and between them a bar for each step, from where the one before it ended."""
    edges, level = [], first
    for step in steps:
        edges.append((level, level + step))
        level += step
    highest = max([first, last, *(max(edge) for edge in edges)]) or 1.0
    between = [
        Bar(_percent(min(edge), highest), _percent(abs(edge[1] - edge[0]), highest), _sign(edge))
        for edge in edges
    ]
    totals = [Bar("0", _percent(total, highest), "total") for total in (first, last)]
    return [totals[0], *between, totals[1]]


def _sign(edge: tuple[float, float]) -> str:
    return "saved" if edge[1] < edge[0] else "added" if edge[1] > edge[0] else "same"


def bars_of(table: Table) -> list[Bar] | None:
    """A bar for each row of a table whose column has bars; None without such a column."""
    if table.name == "waterfall":
        return waterfall_bars(table) if table.rows else None
    column = next((column for column in table.columns if column.has_bar), None)
    figures = [record[column.name] for record in table.records()] if column else []
    if column is None or set(figures) == {None}:
        return None
    values = [float(value or 0) for value in figures]
    # Shares of many rows would all be dots beside the whole.
    is_of_whole = column.unit == "share" and table.name != "operators"
    return plain_bars(values, 1.0 if is_of_whole else None)


def plain_bars(values: Sequence[float], total: float | None = None) -> list[Bar]:
    """A bar for each value, the largest as long as the track where nothing is the whole."""
    total = total or max(values, default=0.0) or 1.0
    return [Bar("0", _percent(min(max(value, 0.0), total), total), "total") for value in values]


def dots_of(table: Table) -> View | None:
    """Programs by coverage, SNR and size; None for every other table."""
    if table.name != "programs":
        return None
    records = [r for r in table.records() if None not in (r["sme2_share"], r["snr_db"])]
    if not records:
        return None
    ratios, shares, sizes = (
        [float(r[name] or 0) for r in records] for name in ("snr_db", "sme2_share", "size_bytes")
    )
    low, reach = min(ratios), (max(ratios) - min(ratios)) or 1.0
    largest = max(sizes) or 1.0
    colours = {
        name: f"c{i % 6}" for i, name in enumerate(dict.fromkeys(r["precision"] for r in records))
    }
    return {
        "legend": [{"name": name, "colour": colour} for name, colour in colours.items()],
        "top": format_value("dB", max(ratios)),
        "bottom": format_value("dB", low) if low < max(ratios) else "",
        "dots": [
            {
                "x": round(40 + 920 * share, 1),
                "y": round(280 - 240 * (ratio - low) / reach, 1),
                "r": round(5 + 20 * (size / largest) ** 0.5, 1),
                "colour": colours[r["precision"]],
                "is_on_front": r["front"],
                "title": f"{r['precision']}, {r['program']}: {format_share(share)} on "
                f"SME2, {format_value('dB', ratio)}, {format_value('bytes', size)}",
            }
            for r, ratio, share, size in zip(records, ratios, shares, sizes, strict=True)
        ],
    }


def front_of(table: Table) -> View | None:
    """Runs by latency or else work on SME, by likeness or else size; None for every other table."""
    if table.name != "front" or not table.rows:
        return None
    across = "latency_ns" if _any(table, "latency_ns") else "sme_share"
    up = "snr_db" if _any(table, "snr_db") else "size_bytes"
    records = [r for r in table.records() if r[across] is not None and r[up] is not None]
    if not records:
        return None
    columns = {column.name: column for column in table.columns}
    rights, ups = ([float(r[name] or 0) for r in records] for name in (across, up))
    sizes = [float(r["size_bytes"] or 0) for r in records]
    right = max(rights) if across == "latency_ns" else 1.0
    # The better end is above: of sizes, the smaller.
    low, high = (min(ups), max(ups)) if up == "snr_db" else (max(ups), 0.0)
    kinds = list(dict.fromkeys(str(r["kind"]) for r in records))
    left_out = len(table.rows) - len(records)
    return {
        "across": [columns[across].heading, *(format_value(columns[across].unit, end) for end in (0.0, right))],
        "up": [columns[up].heading, *(format_value(columns[up].unit, end) for end in (low, high))],
        "legend": [{"name": kind, "colour": f"c{i % len(_COLOURS)}"} for i, kind in enumerate(kinds)],
        "left_out": left_out,
        "dots": [
            {
                "number": r["number"],
                "left": _percent(x, right or 1.0),
                "bottom": _percent(y - low, high - low) if high != low else "50",
                "size": round(1.6 + 1.4 * (size / (max(sizes) or 1.0)) ** 0.5, 2),
                "colour": f"c{kinds.index(str(r['kind'])) % len(_COLOURS)}",
                "is_on_front": r["is_unbeaten"],
                "title": ", ".join([str(r["run"]), *(
                    f"{columns[name].heading} {format_value(columns[name].unit, r[name])}"
                    for name in (across, "snr_db", "size_bytes"))]),
            }
            for r, x, y, size in zip(records, rights, ups, sizes, strict=True)
        ],
    }  # fmt: skip


def _any(table: Table, name: str) -> bool:
    return any(record[name] is not None for record in table.records())


def icicle_of(table: Table) -> View | None:
    """Nested boxes of one side, or of two and their difference; None for every other table."""
    if table.name not in {"icicle", "icicle_changes"} or not table.rows:
        return None
    sides = [c for c in table.columns if c.name in {"mean_ns", "baseline_ns", "candidate_ns"}]
    boxes: list[View] = []
    for record in table.records():
        times = [float(record[side.name] or 0) for side in sides]
        delta = times[-1] - times[0]
        boxes.append({
            **record,
            "colour": _COLOURS.get(str(record["group"]), ""),
            "weights": [round(time, 1) for time in (*times, math.fsum(times) / 2)],
            "texts": [*map(format_duration, times), format_value("±ns", delta)],
            "change": _change_shade(times[0], times[-1]),
            "inside": [],
        })  # fmt: skip
        if record["parent"] is not None:
            boxes[int(record["parent"])]["inside"].append(boxes[-1])
    names = [side.heading if len(sides) > 1 else "" for side in sides]
    longest = max(boxes[0]["weights"]) or 1.0
    widths = [_percent(weight, longest) for weight in boxes[0]["weights"]]
    return {
        "root": boxes[0],
        "sides": list(zip(names, widths, strict=False)),
        "depth": max(int(box["depth"]) for box in boxes) + 1,
    }


def _change_shade(before: float, after: float) -> str:
    """The class of a difference by its part of the slower side: below 5 %, 20 %, half, or above."""
    share = (after - before) / (max(before, after) or 1.0)
    strength = sum(abs(share) >= threshold for threshold in _CHANGE_STEPS)
    return f"{'added' if share > 0 else 'saved'}{strength}" if strength else "same0"


def steps_of(table: Table) -> View | None:
    """Empirical distribution of each experiment's launches; None for every other table.

    The axis is logarithmic; launches that took far longer than the others are counted, not drawn.
    """
    records = table.records() if table.name == "launches" else []
    if not records:
        return None
    times: dict[str, list[float]] = {}
    for record in records:
        times.setdefault(str(record["experiment"]), []).append(float(record["median_ns"] or 0))
    scale = _LogScale(min(map(min, times.values())) * 0.99, _upper_end(times.values()) * 1.01)
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in times}
    for record in records:
        x = round(scale.share(float(record["median_ns"] or 0)) * _CHART_WIDTH, 1)
        y = round(_CHART_HEIGHT * (1 - float(record["at_most"] or 0)), 1)
        lines[str(record["experiment"])].append((x, y))
    return {
        "ticks": scale.ticks(),
        "beyond": sum(x > _CHART_WIDTH for points in lines.values() for x, _ in points),
        "lines": [
            {
                "name": name,
                "colour": f"c{number % 6}",
                "path": f"M0 {_CHART_HEIGHT}"
                + "".join(f"H{x}V{y}" for x, y in points if x <= _CHART_WIDTH)
                + f"H{_CHART_WIDTH}",
                "count": len(points),
            }
            for number, (name, points) in enumerate(lines.items())
        ],
    }


def roofline_of(table: Table) -> View | None:
    """Operators by work for each byte, and by rate or else by work; None for other tables."""
    records = table.records() if table.name == "intensity" else []
    height = "gflops" if table.has_values("gflops") else "macs"
    plotted = [r for r in records if r[height] and r["macs_per_byte"]]
    rights, ups = ([math.log10(float(r[name] or 1)) for r in plotted]
                   for name in ("macs_per_byte", height))  # fmt: skip
    if not plotted:
        return None
    x_min, x_max = math.floor(min(rights)), math.floor(max(rights)) + 1
    roofs = _roofs(records) if height == "gflops" else []
    ups_of_roofs = [math.log10(peak) for peak, _ in roofs]
    y_min, y_max = math.floor(min(ups)), math.floor(max(ups + ups_of_roofs)) + 1
    unit = "GFLOP/s" if height == "gflops" else "MACs"
    return {
        "height": unit,
        "columns": [(round(60 + 920 * (e - x_min) / (x_max - x_min), 1), _power_of_ten(e))
                    for e in range(x_min, x_max + 1)],
        "rows": [(round(290 - 270 * (e - y_min) / (y_max - y_min), 1), _power_of_ten(e))
                 for e in range(y_min, y_max + 1)],
        "dots": [
            {
                "x": round(60 + 920 * (x - x_min) / (x_max - x_min), 1),
                "y": round(290 - 270 * (y - y_min) / (y_max - y_min), 1),
                "number": r["number"],
                "colour": colour_of(group_of(OperatorClass(str(r["category"]), str(r["class"])))),
                "title": f"{r['name']}: {format_number(float(r['macs_per_byte'] or 0))} MACs per byte, "
                f"{format_number(float(r[height] or 0))} {unit}{_bound_text(r)}",
            }
            for r, x, y in zip(plotted, rights, ups, strict=True)
        ],
        "roofs": [line for roof in roofs
                  if (line := _roof_line(*roof, (x_min, x_max), (y_min, y_max)))],
    }  # fmt: skip


def _power_of_ten(exponent: int) -> str:
    """Returns what fits beside an axis: `100`, `10⁶`."""
    if abs(exponent) < _LARGE_EXPONENT:
        return format_number(10.0**exponent)
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def _bound_text(record: Mapping[str, Value]) -> str:
    share = record["of_roof"]
    return f", {format_share(float(share))} of its roof ({record['bound']})" if share else ""


def _roofs(records: Sequence[Mapping[str, Value]]) -> list[tuple[float, float]]:
    """A peak (GFLOP/s) for each type, and the steepest stream's rate (GB/s) that goes with it."""
    peaks = {float(r["compute_peak"]) for r in records if r["compute_peak"]}
    streams = [float(r["bandwidth_peak"]) for r in records if r["bandwidth_peak"]]
    return [(peak, rate) for peak in sorted(peaks) for rate in sorted({min(streams), max(streams)})]


def _roof_line(
    peak: float, rate: float, across: tuple[int, int], upwards: tuple[int, int]
) -> View | None:
    """A slope of `rate` bytes up to `peak`, in the chart's own coordinates; a MAC is two operations.

    None for a roof that lies below or right of all that is shown.
    """
    (x_min, x_max), (y_min, y_max) = across, upwards
    corner = math.log10(peak / rate / 2)

    def at(x: float, y: float) -> tuple[float, float]:
        across_it, up = (x - x_min) / (x_max - x_min), (y - y_min) / (y_max - y_min)
        return round(60 + 920 * across_it, 1), round(290 - 270 * up, 1)

    # Where the slope enters from below or from the left.
    start = max(x_min, corner - (math.log10(peak) - y_min))
    if start > x_max:
        return None
    points = [(start, math.log10(peak) - (corner - start)), (corner, math.log10(peak))]
    inside = [at(x, y) for x, y in points if x <= x_max] if corner > x_min else []
    ends = (
        at(x_max, math.log10(peak))
        if corner <= x_max
        else at(x_max, math.log10(peak) - (corner - x_max))
    )
    line = [*(inside or [at(x_min, math.log10(peak))]), ends]
    return {
        "path": "M" + "L".join(f"{x} {y}" for x, y in line),
        "title": f"{format_number(peak)} GFLOP/s, {format_number(rate)} GB/s",
    }


def shades_of(table: Table) -> list[list[float | None]]:
    """How strongly each cell of a shaded table is shaded, in per cent; the least is 100."""
    if not table.is_shaded:
        return [[None] * len(row) for row in table.rows]
    numbers = [v for row in table.rows for v in row if isinstance(v, int | float)]
    minimum, maximum = min(numbers, default=0.0), max(numbers, default=0.0)
    reach = (maximum - minimum) or 1.0
    return [
        [
            (100.0 if v == minimum else round(80 * (maximum - v) / reach))
            if isinstance(v, int | float)
            else None
            for v in row
        ]
        for row in table.rows
    ]


def _percent(value: float, total: float) -> str:
    return f"{value / total * 100:.3f}"


def timelines(experiments: Sequence[ExperimentAnalysis]) -> list[View]:
    """A mean inference of each, on one scale; starts are laid end to end, not measured."""
    experiments = [experiment for experiment in experiments if experiment.split.times]
    totals = [
        math.fsum(times.mean_ns for _, times in experiment.split.parts)
        for experiment in experiments
    ]
    longest = max(totals, default=0.0) or 1.0
    return [
        {
            "name": experiment.name,
            "total": format_duration(total),
            "bars": list(_timeline_bars(experiment.split, longest)),
        }
        for experiment, total in zip(experiments, totals, strict=True)
    ]


def _timeline_bars(split: OperatorSplit, scale_ns: float) -> Iterator[View]:
    start = 0.0
    for row, times in split.parts:
        if times.mean_ns > 0:
            times_text = f"{format_duration(times.mean_ns)}, {format_share(times.share)}"
            yield {
                "x": f"{start / scale_ns * _CHART_WIDTH:.2f}",
                "width": f"{times.mean_ns / scale_ns * _CHART_WIDTH:.2f}",
                "colour": colour_of(group_of(row.operator_class)),
                "title": f"{_located(row)}: {times_text}",
                "outside": isinstance(row, OperatorRow) and not row.is_delegated,
            }
        start += times.mean_ns


def _located(row: OperatorRow | OverheadRow) -> str:
    """Names the layer, then the operator."""
    return row.label if row.name == row.label else f"{row.name}, {row.label}"


def latency_chart(experiments: Sequence[ExperimentAnalysis]) -> View | None:
    """Raw latencies in the order of measuring, block by block, warm-up apart; None untimed.

    The axis is logarithmic, so that a fast side is not flat beside a slow one. It ends above every
    launch's median; latencies beyond it are counted.
    """
    timed = [(e, e.metrics.blocks) for e in experiments if e.metrics and e.metrics.blocks]
    if not timed:
        return None
    samples = [[s for block in blocks for s in block.latency_ns] for _, blocks in timed]
    warmups = [w for _, blocks in timed for block in blocks for w in block.warmup_latency_ns]
    medians = [float(np.median(block.latency_ns)) for _, blocks in timed for block in blocks]
    highest = max(_upper_end(samples), *medians, float(np.median(warmups)) if warmups else 0.0)
    scale = _LogScale(min(map(min, samples)) * 0.98, highest * 1.02)
    every = list(itertools.chain(*samples))
    return {
        "ticks": scale.ticks(),
        "count": format_count(len(every)),
        "beyond": sum(latency > scale.high for latency in [*every, *warmups]),
        "panels": [
            {
                "name": e.name,
                "blocks": _sample_blocks(blocks, scale),
                "median": format_duration(e.latency.steady.median) if e.latency else "",
            }
            for e, blocks in timed
        ],
    }


def _sample_blocks(blocks: Sequence[BlockMetrics], scale: _LogScale) -> list[View]:
    """Points of each block as SVG paths of dots; outside the scale they stick to its edge."""
    slot = _CHART_WIDTH / len(blocks)
    return [
        {
            "number": block.block + 1,
            "warmup": _dots(block.warmup_latency_ns, i * slot, slot * 0.15, scale),
            "steady": _dots(block.latency_ns, i * slot + slot * 0.18, slot * 0.75, scale),
            "x": f"{i * slot:.1f}",
            "median": f"{_height(float(np.median(block.latency_ns)), scale):.1f}",
            "end": f"{(i + 0.95) * slot:.1f}",
        }
        for i, block in enumerate(blocks)
    ]


def _dots(values: Sequence[int], offset: float, width: float, scale: _LogScale) -> str:
    """An SVG path of points, thinned evenly to what the eye can tell apart."""
    step = max(1, len(values) // _POINTS_A_BLOCK)
    thinned = values[::step]
    spread = width / max(len(thinned), 1)
    return "".join(
        f"M{offset + i * spread:.1f} {_height(value, scale):.1f}h0"
        for i, value in enumerate(thinned)
    )


def _height(value: float, scale: _LogScale) -> float:
    return _CHART_HEIGHT * (1 - min(max(scale.share(value), 0.0), 1.0))
