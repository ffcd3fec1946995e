"""Runs, baselines, noise and changes of level as terminal tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from etprof.base.units import MISSING, format_size
from etprof.history.check import subject_of
from etprof.history.check_report import format_change, format_value, metric_label
from etprof.history.metric_names import HEADLINE
from etprof.history.schema import FAILED
from etprof.history.whereabouts import find_run_directory
from etprof.report.tables import bordered_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from etprof.base.plain_table import PlainTable
    from etprof.history.noise import NoiseFloor
    from etprof.history.schema import Baseline, Metric, Run
    from etprof.history.trend import LevelChange

_SHOWN_DIGITS = 10
"""Of a commit."""


def runs_table(runs: Iterable[Run]) -> PlainTable:
    """Returns one line per run."""
    table = _table("", "run", "measured", "what", "device", "commit", "branch", "inference")
    for run in runs:
        subject = subject_of(run)
        outcome = Text("failed", style="bold red") if run.status == FAILED else _headline(run)
        cells = (f"#{run.id}", _moment(run.measured_at), subject.title, run.device)
        texts = (*cells, _commit(run), run.git_branch or MISSING)
        table.add_row(*(Text(text) for text in texts), outcome)
    return table


def run_details(run: Run) -> RenderableType:
    """Returns everything about one run."""
    subject, place = subject_of(run), find_run_directory(run)
    facts = {
        "device": f"{run.device} ({run.device_kind})",
        "SoC": run.soc,
        "measured": _moment(run.measured_at),
        "run directory": str(place.folder)
        if place.folder
        else f"{run.run_path or MISSING} ({place.reason})",
        "experiment": run.experiment,
        "commit": _commit(run, whole=True),
        "branch": run.git_branch,
        "ExecuTorch": run.executorch_version,
        "pins": ", ".join(f"{name} {version}" for name, version in run.pins.items()),
        "series": run.series,
        "status": run.status if run.failure is None else f"{run.status}: {run.failure}",
    }
    lines = [Text(f"#{run.id} {subject.title}", style="bold")]
    lines += [Text(f"{name:14} {value or MISSING}") for name, value in facts.items()]
    if not run.representative:
        lines.append(Text("Emulated: its times mean nothing", style="yellow"))
    return Group(*lines, _metrics_table(run.metrics), _artefacts_table(run), Text(""))


def _metrics_table(metrics: Sequence[Metric]) -> PlainTable:
    table = bordered_table("", "metric", "median", "95 % interval", "blocks")
    for metric in metrics:
        interval = MISSING
        if metric.low is not None:
            low, high = (format_value(v, metric.unit) for v in (metric.low, metric.high))
            interval = f"{low} … {high}"
        value = format_value(metric.value, metric.unit)
        table.add_row(Text(metric_label(metric.name)), value, interval, str(metric.count))
    return table


def _artefacts_table(run: Run) -> PlainTable:
    table = _table("", "artefact", "SHA-256", "size")
    for name, entry in sorted(run.artefacts.items()):
        table.add_row(Text(name), str(entry["sha256"]), format_size(entry.get("size_bytes")))
    return table


def baselines_table(rows: Iterable[tuple[Baseline, Run]]) -> PlainTable:
    """Returns one line per baseline and series."""
    table = _table("", "baseline", "run", "what", "device", "commit", "pinned")
    for baseline, run in rows:
        subject = subject_of(run)
        cells = (baseline.name, f"#{run.id}", subject.title, run.device, _commit(run))
        table.add_row(*(Text(cell) for cell in (*cells, _moment(baseline.pinned_at))))
    return table


def noise_table(floors: Iterable[NoiseFloor]) -> PlainTable:
    """Returns one line per device and metric."""
    title = "Spread of one run, from runs that repeat each other (A/A)"
    table = bordered_table(title, "device", "metric", "spread", "runs", "groups")
    for floor in floors:
        spread = f"{floor.of_run * 100:.2f} %"
        cells = (floor.device, metric_label(floor.metric), spread)
        table.add_row(*(Text(cell) for cell in cells), str(floor.runs), str(floor.groups))
    return table


def changes_table(metric: str, changes: Iterable[LevelChange]) -> PlainTable:
    """Returns one line per change of level."""
    columns = ("what", "device", "measured", "commits", "before", "after", "change")
    table = _table(metric_label(metric), "run", *columns)
    for entry in changes:
        run = entry.run
        is_worse = (entry.change < 0) == entry.higher_is_better
        before, after = (format_value(v, entry.unit) for v in (entry.before, entry.after))
        commits = f"{_commit(entry.previous)}..{_commit(run)}"
        cells = (f"#{run.id}", subject_of(run).title, run.device, _moment(run.measured_at))
        change = Text(format_change(entry.change), style="red" if is_worse else "green")
        table.add_row(*(Text(cell) for cell in (*cells, commits, before, after)), change)
    return table


def _table(title: str, first: str, *columns: str) -> PlainTable:
    """A table of texts."""
    table = bordered_table(title, first, *columns)
    for column in table.columns[:-1]:
        column.justify = "left"
        column.overflow = "fold"
    return table


def _headline(run: Run) -> Text:
    found = next((metric for metric in run.metrics if metric.name == HEADLINE), None)
    if found is None or not run.representative:
        return Text(MISSING if run.representative else "emulated")
    return Text(format_value(found.value, found.unit))


def _commit(run: Run, *, whole: bool = False) -> str:
    """Names the commit; `+` says that files were changed."""
    if run.git_commit is None:
        return MISSING
    return run.git_commit[: None if whole else _SHOWN_DIGITS] + ("+" if run.git_dirty else "")


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
