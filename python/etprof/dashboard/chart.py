"""Geometry of the trend chart: SVG units, both ways of laying runs out, which points are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etprof.base.units import format_range, format_value
from etprof.history.tables import format_moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from etprof.dashboard.queries import TrendPoint
    from etprof.statistics.change_points import ChangePoint

View = dict[str, Any]
WIDTH, HEIGHT = 1000.0, 300.0
_BAND: Final = 24.0
"""The lower edge, where failed runs stand."""
MOST_POINTS: Final = 500
_LEAST_POINTS: Final = 20


@dataclass(frozen=True)
class Line:
    """One series of the chart."""

    name: str
    sme: str
    points: Sequence[TrendPoint]
    """The oldest first."""
    changes: Sequence[ChangePoint]
    """Change points, by indices of the measured points."""

    @property
    def measured(self) -> list[TrendPoint]:
        """The runs that have a value."""
        return [point for point in self.points if point.value is not None]

    @property
    def failed(self) -> list[TrendPoint]:
        """The runs that failed."""
        return [point for point in self.points if point.value is None]


class Scale:
    """Where moments and values lie."""

    def __init__(self, lines: Sequence[Line], axis: str) -> None:
        points = [point for line in lines for point in line.points]
        moments = sorted({point.measured_at for point in points})
        self.first, self.last = moments[0], moments[-1]
        self._ranks = {moment: rank for rank, moment in enumerate(moments)}
        self._by_commit = axis == "commits"
        ends = [
            end
            for point in points
            if point.value is not None
            for end in (point.value, point.low, point.high)
            if end is not None
        ]
        reach = (max(ends) - min(ends)) or abs(max(ends)) or 1.0
        lowest = min(ends)
        self.low, self.high = lowest - 0.05 * reach, max(ends) + 0.05 * reach
        # Times, sizes and counts have no values below zero.
        self.low = max(self.low, 0.0) if lowest >= 0 else self.low

    def time(self, point: TrendPoint) -> float:
        """The place by time."""
        span = (self.last - self.first).total_seconds()
        reach = (point.measured_at - self.first).total_seconds() / span if span else 0.5
        return reach * WIDTH

    def order(self, point: TrendPoint) -> float:
        """The place by order of measuring, evenly spaced."""
        steps = len(self._ranks) - 1
        reach = self._ranks[point.measured_at] / steps if steps else 0.5
        return reach * WIDTH

    def x(self, point: TrendPoint) -> float:
        """The place on the axis in force."""
        return self.order(point) if self._by_commit else self.time(point)

    def y(self, value: float) -> float:
        """The height of a value."""
        share = (value - self.low) / (self.high - self.low)
        return (HEIGHT - _BAND) * (1 - share)


def trend_chart(lines: Sequence[Line], unit: str, axis: str) -> View | None:
    """Returns the chart's geometry; None when there is no value."""
    drawn = [line for line in lines if line.measured]
    if not drawn:
        return None
    scale = Scale(drawn, axis)
    points_per_line = max(MOST_POINTS // len(drawn), _LEAST_POINTS)
    line_views = [
        _line(line, number, scale, unit, points_per_line) for number, line in enumerate(drawn)
    ]
    return {
        "width": f"{WIDTH:.0f}",
        "height": f"{HEIGHT:.0f}",
        "floor": f"{HEIGHT - _BAND:.0f}",
        "half": f"{(HEIGHT - _BAND) / 2:.0f}",
        "top": format_value(unit, scale.high),
        "middle": format_value(unit, (scale.low + scale.high) / 2),
        "bottom": format_value(unit, scale.low),
        "first": format_moment(scale.first),
        "last": format_moment(scale.last),
        "lines": line_views,
        "drawn": sum(len(line["points"]) for line in line_views),
        "total": sum(len(line.measured) for line in drawn),
        "has_failures": any(line["failures"] for line in line_views),
    }


def _line(line: Line, number: int, scale: Scale, unit: str, max_points: int) -> View:
    measured = line.measured
    indices = set(choose_points([point.value or 0.0 for point in measured], max_points))
    # A new level is always drawn, else its mark would stand beside nothing.
    indices |= {change.start for change in line.changes}
    points = [_point(measured[i], line.name, scale, unit) for i in sorted(indices)]
    return {
        "name": line.name,
        "sme": line.sme,
        "style": f"line{number % 4}",
        "points": points,
        "path": "".join(
            f"{'L' if i else 'M'}{point['x']} {point['y']}" for i, point in enumerate(points)
        ),
        "changes": [
            {
                **_mark(measured[change.start], scale),
                "band": [_mark(measured[end], scale) for end in (change.earliest, change.latest)],
            }
            for change in line.changes
        ],
        "failures": [_failure(p, line.name, scale) for p in line.failed[-max_points:]],
    }


def _mark(point: TrendPoint, scale: Scale) -> View:
    return {
        "x": f"{scale.x(point):.1f}",
        "time": f"{scale.time(point):.1f}",
        "order": f"{scale.order(point):.1f}",
        "branch": point.branch or "",
        "run_id": point.run_id,
    }


def _point(point: TrendPoint, name: str, scale: Scale, unit: str) -> View:
    value = point.value or 0.0
    y = scale.y(value)
    ends = [scale.y(value if end is None else end) - y for end in (point.high, point.low)]
    interval = format_range(unit, point.low, point.high, value)
    return {
        **_mark(point, scale),
        "when": format_moment(point.measured_at),
        "y": f"{y:.1f}",
        "whisker": f"M0 {ends[0]:.1f}V{ends[1]:.1f}",
        "title": f"{_point_title(point, name)}: {format_value(unit, value)}{f' ({interval})' if point.low is not None else ''}",
    }


def _failure(point: TrendPoint, name: str, scale: Scale) -> View:
    return {**_mark(point, scale), "title": f"{_point_title(point, name)}: failed, {point.failure}"}


def _point_title(point: TrendPoint, name: str) -> str:
    labels = [name, format_moment(point.measured_at)]
    labels += [f"commit {point.commit[:10]}"] if point.commit else []
    labels += [point.branch] if point.branch else []
    return ", ".join(labels)


def sparkline(values: Sequence[float]) -> str | None:
    """Returns the path of values in a box of 300 by 72, from the lowest up; None below two."""
    if len(values) < 2:
        return None
    low, reach = min(values), (max(values) - min(values)) or 1.0
    last = len(values) - 1
    steps = [
        f"{round(300 * i / last)} {round(66 - 60 * (value - low) / reach)}"
        for i, value in enumerate(values)
    ]
    return "M" + "L".join(steps)


def choose_points(values: Sequence[float], max_points: int) -> list[int]:
    """Returns the indices of at most `max_points` values (three or more) that keep a line's shape.

    Largest triangle three buckets (Steinarsson, "Downsampling Time Series for Visual
    Representation", 2013): the first and the last stay, and of every bucket between the value
    that spans the largest triangle with its neighbours, so single peaks survive.
    """
    if len(values) <= max_points:
        return list(range(len(values)))
    levels = np.asarray(values, float)
    edges = np.linspace(1, len(values) - 1, max_points - 1).astype(int)
    indices = [0]
    for number in range(max_points - 2):
        bucket = np.arange(edges[number], edges[number + 1])
        following = np.arange(
            edges[number + 1], edges[number + 2] if number + 2 < max_points - 1 else len(values)
        )
        indices.append(int(bucket[np.argmax(_areas(levels, indices[-1], bucket, following))]))
    return [*indices, len(values) - 1]


def _areas(
    levels: NDArray[np.float64],
    last: int,
    bucket: NDArray[np.int_],
    following: NDArray[np.int_],
) -> NDArray[np.float64]:
    """Twice the areas of the triangles over a bucket's points.

    Args:
        levels: The series, in its own unit, shape (points,).
        last: Index of the point that was chosen before.
        bucket: Indices of the points to choose from, shape (n,).
        following: Indices of the next bucket, whose mean is the third corner.

    Returns:
        Twice the area for each point of the bucket, shape (n,).
    """
    x, y = float(following.mean()), float(levels[following].mean())
    doubled = (last - x) * (levels[bucket] - levels[last]) - (last - bucket) * (y - levels[last])
    areas: NDArray[np.float64] = np.abs(doubled)
    return areas
