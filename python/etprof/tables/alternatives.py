"""Several runs as one comparison: what each is worth, and where each one's time goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.analysis.alternatives import alternatives_of, unbeaten
from etprof.base.units import count_of, format_value
from etprof.tables.comparisons import VERDICT_STYLES
from etprof.tables.operators import CATEGORIES, MODULES
from etprof.tables.table import Column, Section, Table, estimate, speed_up
from etprof.tables.verdicts import head_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.analysis.alternatives import Alternative
    from etprof.analysis.assessment import Assessment
    from etprof.run.manifest import Manifest
    from etprof.tables.table import Value

_MOST_MODULES: Final = 12


class _AlternativeRow(NamedTuple):
    """A run, and whether no other one beats it."""

    run: Alternative
    is_unbeaten: bool


def _of_manifest(getter: Callable[[Manifest], Value]) -> Callable[[Any], Value]:
    def value(row: _AlternativeRow) -> Value:
        manifest = row.run.assessment.run.manifest
        return None if manifest is None else getter(manifest)

    return value


def _accuracy(row: _AlternativeRow) -> str:
    return row.run.accuracy.answer if row.run.accuracy else "unknown"


RUNS: Final = Table(
    "runs",
    (
        Column("number", "Int64", "count", basis="position", title="#", of=lambda r: r.run.number,
               says="place among the runs that were given"),
        Column("run", "string", of=lambda r: r.run.name, says="what tells it from the others"),
        Column("cpu", "string", title="CPU", visibility="data",
               of=_of_manifest(lambda m: m.cpu.model_name if m.cpu else None), says="name of the CPU"),
        Column("kind", "string", visibility="data", of=lambda r: r.run.kind,
               says="model and machine: runs of one kind can take each other's place"),
        Column("is_unbeaten", "boolean", title="unbeaten", styles={"yes": "green"},
               of=lambda r: r.is_unbeaten,
               says="no other run of this model on this machine is better in one of latency (untimed: "
               "MACs on SME), likeness and size and worse in none, by the figures of these runs; never of "
               "wrong outputs"),
        *estimate("latency_ns", "ns", lambda r: r.run.latency,
                  lambda r: r.run.latency.median if r.run.latency else None, title="latency",
                  says="median of an inference without event tracer; missing under emulation"),
        *(replace(column, dropped_first=7) for column in speed_up(lambda r: r.run.against_first, title="speedup over the first",
                  says="the first run's latency ÷ this one's; missing where they were not measured under the same conditions")),
        Column("verdict", "string", title="beside the first", is_timed=True, styles=VERDICT_STYLES,
               dropped_first=4, of=lambda r: r.run.against_first.verdict if r.run.against_first else None,
               says="whether that is beyond what separate runs differ by"),
        Column("sme_share", "float64", "share", title="MACs on SME", dropped_first=3,
               of=lambda r: r.run.coverage,
               says="share of the multiply-accumulates in operators on SME, counted or by type"),
        Column("snr_db", "float64", "dB", basis="per output", title="SNR against eager fp32", dropped_first=1,
               of=lambda r: r.run.accuracy.snr_db if r.run.accuracy else None,
               says="signal-to-noise ratio of the worst output; missing without any error, and where not known"),
        Column("accuracy", "string", title="accurate enough", visibility="page", of=_accuracy,
               styles={"passed": "green", "failed": "bold red"},
               says="passed, failed or unknown: by what is asked of its precision"),
        Column("size_bytes", "Int64", "bytes", basis="per program", title="size", dropped_first=2, of=lambda r: r.run.size_bytes,
               says="of the program with its weights"),
        Column("own_result", "string", title="in its own run", visibility="page",
               of=lambda r: head_of(r.run.assessment).badge,
               says="the badge of the run's own headline, such as SME2 against SME off"),
        Column("experiment", "string", dropped_first=6,
               of=lambda r: r.run.insight.experiment.name if r.run.insight else None,
               says="the experiment that all figures are of: the one that the run's own headline is about"),
        Column("platform", "string", visibility="data", of=_of_manifest(lambda m: m.platform),
               says="where it was measured"),
    ),
    title="Runs",
    says="one row per run that was given",
    basis="per inference",
)  # fmt: skip


class _NamedRow(NamedTuple):
    """A run's name, and a row of one of its own tables by column."""

    run: str
    values: dict[str, Value]


def _by_run(table: Table, name: str, keep: tuple[str, ...], **changes: str) -> Table:
    """Declares a table of one experiment as one of several runs, with some of its columns."""

    def reader(column: str) -> Callable[[Any], Value]:
        return lambda row: row.values[column]

    columns = tuple(replace(c, of=reader(c.name), bounds=None, has_bar=False, step="")
                    for c in table.columns if c.name in keep)  # fmt: skip
    run = Column("run", "string", of=lambda row: row.run, says="as in `runs`")
    return replace(table, name=name, columns=(run, *columns), by="", from_each="", **changes)  # type: ignore[arg-type]


RUN_CATEGORIES: Final = _by_run(
    CATEGORIES, "run_categories", ("category", "class", "group", "mean_ns", "share"),
    says="one row per run and finer class, of the experiment in `runs`",
)  # fmt: skip
RUN_MODULES: Final = _by_run(
    MODULES, "run_modules", ("module", "mean_ns", "share"),
    title="By module", says="one row per run and module, of the experiment in `runs`",
)  # fmt: skip


TOGETHER: Final = {table.name: table for table in (RUNS, RUN_CATEGORIES, RUN_MODULES)}
"""Tables of several runs, by name."""


@dataclass(frozen=True)
class RunsSideBySide:
    """Several runs as people read them together, and their tables for programs."""

    title: str
    lead: str
    """Which run to take, in a sentence."""
    runs: Table
    sections: tuple[Section, ...]
    tables: tuple[Table, ...]
    """`runs` among them, with every column and row."""


def side_by_side(assessments: Sequence[Assessment]) -> RunsSideBySide | None:
    """Returns runs as one comparison; None of a single run."""
    if len(assessments) < 2:
        return None
    alternatives = alternatives_of(assessments)
    rows = [
        _AlternativeRow(*pair) for pair in zip(alternatives, unbeaten(alternatives), strict=True)
    ]
    runs = RUNS.of(rows, note=_note(alternatives))
    categories = RUN_CATEGORIES.of(_named_rows(alternatives, CATEGORIES))
    modules = RUN_MODULES.of(_named_rows(alternatives, MODULES))
    timed = RUNS.of([row for row in rows if row.run.assessment.run.is_timed])
    untimed = RUNS.of([row for row in rows if not row.run.assessment.run.is_timed])
    coverage = untimed if any(row["sme_share"] is not None for row in untimed.records()) else RUNS
    matrix = categories.pivot("group", "run", "mean_ns").with_total("Method::execute")
    by_module = modules.pivot("module", "run", "mean_ns")
    sections = (
        Section("front", "Latency, likeness and size", (replace(timed, name="front", is_drawn=True),),
                says="Left is faster; see the axis for what is up; a small dot is a small program. Filled: no "
                "other run of the same model on the same machine beats it. Numbers are those of the table.",
                visibility="page"),
        Section("coverage", "SME, likeness and size of what was not timed",
                (replace(coverage, name="front", is_drawn=True),),
                says="Right is more of the model's multiply-accumulates on SME. None of this is a time.",
                visibility="page"),
        Section("run_categories", "Where each run's time goes",
                (replace(matrix, title="Where each run's time goes"),) if _has_times(categories) else (),
                says="Means with event tracer, of the experiment in the table above."),
        Section("run_modules", "The same by module",
                (replace(_largest(by_module), title="The same by module"),)
                if _has_times(modules) and modules.has_values("module") else (), visibility="page"),
    )  # fmt: skip
    return RunsSideBySide(
        title=count_of(len(alternatives), "run"),
        lead=_lead(alternatives, rows),
        runs=runs,
        sections=tuple(
            section for section in sections if any(table.rows for table in section.tables)
        ),
        tables=(runs, categories, modules),
    )


def tables_together(assessments: Sequence[Assessment]) -> tuple[Table, ...]:
    """Returns the tables of several runs together; none of a single one."""
    comparison = side_by_side(assessments)
    return comparison.tables if comparison else ()


def _has_times(table: Table) -> bool:
    return bool(table.rows) and table.has_values("mean_ns")


def _largest(matrix: Table) -> Table:
    """Keeps the modules that take most, whichever run they take it in."""
    rows = sorted(matrix.rows, key=lambda row: -max(float(value or 0) for value in row[1:]))
    left_out = len(rows) - _MOST_MODULES
    note = f"{count_of(left_out, 'other module')} left out" if left_out > 0 else ""
    return replace(matrix, rows=tuple(rows[:_MOST_MODULES]), note=note)


def _named_rows(alternatives: Sequence[Alternative], table: Table) -> Iterator[_NamedRow]:
    for alternative in alternatives:
        if alternative.insight is not None:
            subject = (
                alternative.insight.experiment
                if table.from_each == "experiment"
                else alternative.insight
            )
            for record in table.of_each([subject]).records():
                if record["mean_ns"] is not None:
                    yield _NamedRow(alternative.name, record)


def _lead(alternatives: Sequence[Alternative], rows: Sequence[_AlternativeRow]) -> str:
    """Says which run to take, where that can be said."""
    if len({alternative.peer_group for alternative in alternatives}) > 1:
        return (
            "These runs are of several models or machines, or not all were timed; each is held "
            "against those of its own kind."
        )
    best = [row.run for row in rows if row.is_unbeaten]
    if len(best) == 1 and best[0].name:
        return f"{best[0].name} is at least as good as every other run in all that is known, by these figures."
    if not best:
        return "No run can be taken: the outputs of all are wrong."
    clauses = [
        f"{_names(best)} are unbeaten by these figures: no other run is better in one thing and worse in none"
    ]
    if all(run.latency for run in best):
        fastest = min(best, key=lambda run: run.latency.median if run.latency else 0.0)
        latency = fastest.latency.median if fastest.latency else None
        clauses.append(f"{fastest.name} has the lowest latency, {format_value('ns', latency)}")
    return f"{'; '.join(clauses)}."


def _names(alternatives: Sequence[Alternative]) -> str:
    *names, last = (alternative.name for alternative in alternatives)
    return f"{', '.join(names)} and {last}"


def _note(alternatives: Sequence[Alternative]) -> str:
    """Says what a difference between the latencies does not mean."""
    if not any(alternative.latency for alternative in alternatives):
        return "none of these runs was timed, so none has a latency"
    return (
        "separate runs also differ by what changes from one run to the next; for a verdict, measure "
        "two programs in one run (`etprof docs measuring`)"
    )
