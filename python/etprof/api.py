"""The Python API: what the reports show, as pandas frames.

    import etprof

    run = etprof.load_run("out_mobilenet_v2/runs/android")
    run.operators().nlargest(5, "mean_ns")
    etprof.compare(run.experiment("android_off"), run.experiment("android_sme2")).verdict

Times are in ns, shares are fractions of one, speedup is baseline ÷ candidate. Missing values are
`<NA>` or NaN. docs/python_api.md lists every column.
"""

from __future__ import annotations

import html
import itertools
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from etprof.analysis.assessment import Assessment, assess_run
from etprof.analysis.compare.comparability import Side, refuse_unlike
from etprof.analysis.compare.comparison import Comparison, compare_sides
from etprof.analysis.compare.pairs import match_runs
from etprof.analysis.run_analysis import analyze_run
from etprof.base.atomic import write_text
from etprof.base.errors import UsageError
from etprof.base.text import suggest
from etprof.importing.bare_etdump import load_source
from etprof.statistics.effect import DEFAULT_MARGIN
from etprof.tables import comparisons
from etprof.tables.alternatives import TOGETHER
from etprof.tables.alternatives import side_by_side as place_side_by_side
from etprof.tables.operators import ROLLUPS
from etprof.tables.report import (
    DECLARED,
    comparison_sections,
    report_sections,
    report_table,
)
from etprof.views.documents import comparison_document
from etprof.views.events import event_blocks, events_frame
from etprof.views.files import build_frame
from etprof.views.formats.html import render_html, render_sections

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.statistics.order_statistics import Interval
    from etprof.tables.table import Section
    from etprof.views.events import EventBlock

COLUMNS: Final[dict[str, dict[str, str]]] = {
    name: {column.name: column.dtype for column in table.columns}
    for name, table in (DECLARED | TOGETHER).items()
}
"""Columns of each frame, in order, with their pandas dtypes."""
Unit = Literal["ns", "us", "ms", "s"]
_NS_PER: dict[Unit, float] = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def load_run(path: str | Path) -> Run:
    """Reads a run directory or a single ETDump; needs neither torch nor executorch.

    Raises InputFileError when there is nothing to read, or it is damaged, and UsageError for an
    ETDump of which nothing says what its clock counts.
    """
    return Run(assess_run(analyze_run(load_source(Path(path), with_reference=True))))


def compare(
    baseline: Run | Experiment | str | Path,
    candidate: Run | Experiment | str | Path,
    *,
    allow: Collection[str] = (),
    margin: float = DEFAULT_MARGIN,
) -> ComparisonResult:
    """Compares two experiments, or two runs that have one pair of experiments alike.

    Raises UsageError, naming the fields, for sides that were not measured alike, unless they are
    in `allow`; `margin` is what counts as no difference.
    """
    (baseline_run, baseline_name), (candidate_run, name) = _side(baseline), _side(candidate)
    analyses = baseline_run.assessment.run, candidate_run.assessment.run
    pairs = match_runs(*analyses, (baseline_name, name))
    if len(pairs) != 1:
        names = ", ".join(f"{a.experiment.name} and {b.experiment.name}" for a, b in pairs)
        raise UsageError(
            f"these runs have several pairs of experiments ({names}); give run.experiment(NAME)"
        )
    refuse_unlike(*pairs[0], allow)
    return ComparisonResult(compare_sides(*pairs[0], margin=margin))


def side_by_side(*runs: Run | str | Path) -> pd.DataFrame:
    """Returns several runs as alternatives, the table `runs`: one row each, in their order.

    `is_unbeaten` marks those that no other run of the same model on the same machine beats in
    latency, likeness to the float32 model and size at once. Raises UsageError for fewer than two.
    """
    loaded = [run if isinstance(run, Run) else load_run(run) for run in runs]
    alternatives = place_side_by_side([run.assessment for run in loaded])
    if alternatives is None:
        raise UsageError("side_by_side takes two runs or more")
    return build_frame(alternatives.runs)


def _side(value: Run | Experiment | str | Path) -> tuple[Run, str | None]:
    if isinstance(value, Experiment):
        return value.run, value.name
    return (value, None) if isinstance(value, Run) else (load_run(value), None)


@dataclass(frozen=True)
class Run:
    """A run directory, or an ETDump, with everything that etprof finds in it."""

    assessment: Assessment

    def __repr__(self) -> str:
        return f"<etprof run {self.source}: {', '.join(self.experiments)}>"

    def _repr_html_(self) -> str:
        """The report, as notebooks show it."""
        return _in_frame(render_html([self.assessment]))

    @property
    def source(self) -> Path:
        """Where it was read from."""
        return self.assessment.run.source

    @property
    def model(self) -> str | None:
        """Name of the model; None for an ETDump alone."""
        manifest = self.assessment.run.manifest
        return manifest.model.name if manifest else None

    @property
    def platform(self) -> str | None:
        """android, mac, linux or emulator; None for an ETDump alone."""
        manifest = self.assessment.run.manifest
        return manifest.platform if manifest else None

    @property
    def times_are_meaningful(self) -> bool:
        """False for emulated runs, whose tables have no times."""
        return self.assessment.run.is_timed

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments."""
        return tuple(experiment.name for experiment in self.assessment.run.experiments)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing, and what that costs."""
        return self.assessment.notes

    @cached_property
    def sections(self) -> tuple[str, ...]:
        """Names of the report's sections, such as `icicle`, in its order."""
        return tuple(section.anchor for section in report_sections(self.assessment))

    def section(self, name: str) -> ReportSection:
        """Returns one section with its picture, as notebooks show it.

        Raises UsageError, with the names there are, for any other.
        """
        for section in report_sections(self.assessment):
            if section.anchor == name:
                return ReportSection(section)
        msg = f"{self.source} has no section {name!r}; it has {', '.join(self.sections)}"
        raise UsageError(msg)

    def experiment(self, name: str) -> Experiment:
        """Returns one experiment, for `compare`; raises UsageError for an unknown name."""
        if name not in self.experiments:
            raise UsageError(
                f"{self.source} has no experiment {name!r}; it has {', '.join(self.experiments)}"
            )
        return Experiment(self, name)

    def table(self, name: str) -> pd.DataFrame:
        """One of the report's tables, such as `costs`; `COLUMNS` has the names of all.

        Raises UsageError, with these names, for any other.
        """
        return build_frame(report_table(self.assessment, name))

    def operators(self) -> pd.DataFrame:
        """One row per experiment and operator: times, microkernel, work, origin."""
        return self.table("operators")

    def categories(self) -> pd.DataFrame:
        """One row per experiment and finer class; shares of an experiment add up to one."""
        return self.table("categories")

    def rollup(self, by: Literal["module", "source", "microkernel"]) -> pd.DataFrame:
        """One row per experiment and module, source line or microkernel, the most time first."""
        return self.table(ROLLUPS[by].name)

    def samples(self) -> pd.DataFrame:
        """Every raw latency without tracer: experiment, block, phase, index, latency_ns."""
        return self.table("samples")

    def tracer_costs(self) -> pd.DataFrame:
        """One row per cost of the event tracer: recording events, or having it compiled in."""
        return self.table("tracer_costs")

    def findings(self) -> pd.DataFrame:
        """What the rules say, worst first in each experiment."""
        return self.table("findings")

    def comparisons(self) -> pd.DataFrame:
        """Verdicts of all pairs of experiments that answer a question."""
        return self.table("comparisons")

    def event_blocks(self, experiment: str | None = None) -> tuple[EventBlock, ...]:
        """The ETDump's event blocks with every event's raw durations, as Inspector has them.

        Executions with impossible time stamps are left out; `notes` says how many.
        """
        analysis = self._experiment(experiment)
        return event_blocks(analysis.executions, self.assessment.insight.of(analysis.name).details)

    def events(self, experiment: str | None = None) -> pd.DataFrame:
        """Every event of all blocks, as `event_blocks` has them, one row each."""
        return events_frame(self.event_blocks(experiment))

    def find_total_for_module(
        self, module: str, *, experiment: str | None = None, unit: Unit = "ms"
    ) -> float | None:
        """Adds up the mean times of all operators of a module and the modules inside it.

        `module` is a whole path such as `blocks.0.attn`: `block` does not match `blocks`. An empty
        one is the model, with the operators that have no module. Nested events are counted once.
        Returns None where times mean nothing. Raises UsageError for a module without operators.
        """
        analysis = self._experiment(experiment)
        if analysis.split.times is None:
            return None
        details = [
            detail
            for detail in self.assessment.insight.of(analysis.name).details
            if detail.row.times
        ]
        paths = {detail.module_path or "" for detail in details}
        inside = {path for path in paths if not module or f"{path}.".startswith(f"{module}.")}
        if not inside:
            prefixes = (
                tuple(itertools.accumulate(path.split("."), "{}.{}".format)) for path in paths
            )
            modules = {parent for parents in prefixes for parent in parents}
            msg = f"module {module!r} has no operators here{suggest(module, modules)}"
            raise UsageError(msg)
        times_inside = (
            detail.row.times for detail in details if (detail.module_path or "") in inside
        )
        return fsum(times.mean_ns for times in times_inside if times) / _NS_PER[unit]

    def print_data_tabular(self, experiment: str | None = None) -> None:
        """Prints the operators of one experiment as a plain table."""
        print(self._printable(experiment).to_string(index=False))

    def save_data_to_tsv(self, path: str | Path, experiment: str | None = None) -> None:
        """Writes the operators of one experiment with tabs between the columns."""
        write_text(Path(path), self._printable(experiment).to_csv(sep="\t", index=False))

    def save_html(self, path: str | Path) -> None:
        """Writes the HTML report."""
        write_text(Path(path), render_html([self.assessment]))

    def _printable(self, experiment: str | None) -> pd.DataFrame:
        name = self._experiment(experiment).name
        table = self.operators()
        columns = ["name", "label", "class", "delegated", "calls", "median_ns", "mean_ns", "share"]
        return table.loc[table["experiment"] == name, columns]

    def _experiment(self, name: str | None) -> ExperimentAnalysis:
        """The named experiment, or the one that the report's headline is about."""
        if name is None:
            return self.assessment.primary.experiment
        self.experiment(name)
        return self.assessment.insight.of(name).experiment


@dataclass(frozen=True)
class Experiment:
    """One experiment of a run."""

    run: Run
    name: str


@dataclass(frozen=True)
class ReportSection:
    """A section of a report, with its picture and tables."""

    section: Section

    def __repr__(self) -> str:
        return f"<etprof section {self.section.anchor}: {self.section.title}>"

    def _repr_html_(self) -> str:
        return _in_frame(self._page())

    def save_html(self, path: str | Path) -> None:
        """Writes a page with nothing else on it."""
        write_text(Path(path), self._page())

    def _page(self) -> str:
        return render_sections(self.section.title, [self.section])


@dataclass(frozen=True)
class ComparisonResult:
    """A candidate beside its baseline."""

    comparison: Comparison

    def __repr__(self) -> str:
        return f"<etprof comparison {self.comparison.name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The tables of the comparison, as notebooks show them."""
        return _in_frame(
            render_sections(self.comparison.name, comparison_sections(self.comparison))
        )

    @property
    def baseline(self) -> Side:
        """The side that is compared with."""
        return self.comparison.baseline

    @property
    def candidate(self) -> Side:
        """The side that is compared."""
        return self.comparison.candidate

    @property
    def verdict(self) -> str | None:
        """faster, slower, no difference or inconclusive; None when it was not timed."""
        return self.comparison.latency.verdict if self.comparison.latency else None

    @property
    def speed_up(self) -> float | None:
        """Baseline ÷ candidate of steady latency without tracer."""
        return self.comparison.latency.speed_up if self.comparison.latency else None

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the speedup, None below six blocks; of separate runs that of 99 %."""
        return self.comparison.latency.interval if self.comparison.latency else None

    @property
    def p_value(self) -> float | None:
        """Two-sided test of no effect; None of one run per side."""
        return self.comparison.latency.p_value if self.comparison.latency else None

    @cached_property
    def document(self) -> dict[str, object]:
        """Everything as JSON data, as `etprof compare --json` prints it."""
        return comparison_document(self.comparison)

    def operators(self) -> pd.DataFrame:
        """One row per aligned operator; every operator of both sides exactly once."""
        return build_frame(comparisons.OPERATOR_CHANGES.of_each([self.comparison]))

    def categories(self) -> pd.DataFrame:
        """One row per headline category."""
        return build_frame(comparisons.CATEGORY_CHANGES.of_each([self.comparison]))

    def waterfall(self) -> pd.DataFrame:
        """One row per step; `delta_ns` adds up to the difference of the totals."""
        return build_frame(comparisons.WATERFALL.of_each([self.comparison]))


def _in_frame(page: str) -> str:
    """Returns a page inside another: its style and its script stay its own."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" '
        'style="width: 100%; height: 40rem; border: 0"></iframe>'
    )


__all__ = [
    "COLUMNS",
    "ComparisonResult",
    "Experiment",
    "Run",
    "compare",
    "load_run",
    "side_by_side",
]
