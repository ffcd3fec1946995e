"""Draws where an export's time went as one HTML file that works offline."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import etprof
from etprof.base.html_template import hash_script, read_package_file, template_environment
from etprof.base.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jinja2

    from etprof.export.stages import Step
    from etprof.export.time_split import Share

SMALLEST_SHARE = 1 / 1000
"""Of the whole export: smaller boxes are left out, so that a row has 1000 of them at most."""
_LISTED = 15


@dataclass(frozen=True)
class Box:
    """A step in the picture; place and width in percent of the whole."""

    name: str
    module: str
    time: str
    row: int
    left: float
    width: float

    @property
    def text(self) -> str:
        """What a reader is told of it: name, module, time and share."""
        module = f" ({self.module})" if self.module else ""
        return f"{self.name}{module}: {self.time}, {self.width:.1f} %"


def render(title: str, export: Share) -> str:
    """Returns the page of an export; the root's parts are its stages."""
    style, script = _asset("flame_graph.css"), _asset("flame_graph.js")
    boxes = list(_place(export, export.duration_ns, 0, 0))
    return _template().render(
        title=title,
        boxes=boxes,
        rows=1 + max(box.row for box in boxes),
        busiest=_list_busiest(export),
        total=format_duration(export.duration_ns),
        style=style,
        script=script,
        # Only this very script may run, whatever a model's names contain.
        script_hash=hash_script(script),
        version=etprof.__version__,
    )


def _place(share: Share, total_ns: int, start_ns: int, row: int) -> Iterator[Box]:
    """Yields the box of `share`, and below it those of its parts from left to right."""
    if row and share.duration_ns < total_ns * SMALLEST_SHARE:
        return
    scale = 100 / max(total_ns, 1)
    yield Box(
        share.step.name,
        share.step.module,
        format_duration(share.duration_ns),
        row,
        left=start_ns * scale,
        width=share.duration_ns * scale,
    )
    for part in share.parts.values():
        yield from _place(part, total_ns, start_ns, row + 1)
        start_ns += part.duration_ns


def _list_busiest(export: Share) -> list[tuple[Step, str, str]]:
    """Returns the steps with the most time of their own, wherever they ran: step, time, share."""
    own: dict[Step, int] = defaultdict(int)
    for share in _walk(export):
        own[share.step] += share.own_ns()
    total_ns = max(export.duration_ns, 1)
    ordered = sorted(own.items(), key=lambda item: -item[1])
    return [
        (step, format_duration(own_ns), f"{100 * own_ns / total_ns:.1f} %")
        for step, own_ns in ordered[:_LISTED]
        if own_ns
    ]


def _walk(share: Share) -> Iterator[Share]:
    yield share
    for part in share.parts.values():
        yield from _walk(part)


@cache
def _template() -> jinja2.Template:
    return template_environment(_asset).get_template("flame_graph.html.j2")


def _asset(name: str) -> str:
    """Reads a file that stands beside the template."""
    return read_package_file("etprof.export", "templates", name)
