"""What a history shows, declared as tables: runs, their parts, baselines, noise, changes, checks."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group

from etprof.analysis.exact_facts import EXACT_METRICS, describe_value
from etprof.base.units import MISSING, count_of, first_texts, format_value
from etprof.history.check import title_of
from etprof.history.exact.judging import EXACT_LABELS
from etprof.history.metric_names import HEADLINE, metric_label
from etprof.history.run_spread import DEFAULT_THRESHOLD
from etprof.history.schema import FAILED, TITLES
from etprof.history.whereabouts import find_run_directory
from etprof.tables.brief import AnswerLine, Brief
from etprof.tables.table import Column, Table
from etprof.views.markdown import escape, markdown_table
from etprof.views.terminal import folded_text, terminal_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from rich.console import RenderableType

    from etprof.history.check import CheckedMetric, CheckResult
    from etprof.history.schema import Run

CHECK_VERSION: Final = 1
_SHOWN_DIGITS: Final = 10
"""Of a commit."""
_STYLES: Final = {
    "failed": "bold red",
    "wrong outputs": "bold red",
    "regression": "bold red",
    "drift": "bold red",
    "improvement": "green",
}
_MARKS: Final = {
    "failed": "❌ failed",
    "regression": "🔴 regression",
    "drift": "🔴 drift",
    "improvement": "🟢 improvement",
    "changed": "🔵 changed",
    "inconclusive": "⚪ inconclusive",
    "unchanged": "⚪ unchanged",
}
_MOST_SHOWN: Final = 12
"""Changes that a comment shows unfolded."""
_MOST_FIRST_RUNS: Final = 3
_STRONG: Final = "**"
_ADJECTIVES: Final = ("failed", "changed", "inconclusive", "unchanged")
_URGENT: Final = ("failed", "regression", "drift", "improvement", "changed")


def format_moment(moment: datetime) -> str:
    """Formats a moment to the minute."""
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def format_commit(run: Run) -> str:
    """Names the commit; `+` says that files were changed."""
    if run.git_commit is None:
        return MISSING
    return run.git_commit[:_SHOWN_DIGITS] + ("+" if run.git_dirty else "")


def _outcome(run: Run) -> str:
    """A run's headline, or why there is none."""
    if run.status == FAILED:
        return "failed"
    if run.wrong_outputs is not None:
        return "wrong outputs"
    if not run.representative:
        return "emulated"
    headline = next((metric for metric in run.metrics if metric.name == HEADLINE), None)
    return MISSING if headline is None else format_value(headline.unit, headline.value)


def _commits(change: Any) -> str:  # noqa: ANN401 - a LevelChange
    return f"{format_commit(change.previous)}..{format_commit(change.following)}"


def _columns_via(path: Callable[[Any], Any], *columns: Column) -> list[Column]:
    """The same columns for subjects from which `path` leads to theirs."""
    return [replace(column, of=lambda s, c=column: c.value_of(path(s))) for column in columns]  # type: ignore[misc]


def _judged(name: str) -> Callable[[Any], Any]:
    """What the judgement of a comparison says; None where nothing was judged."""
    return lambda checked: getattr(checked.judgement, name, None)


def checked_label(checked: CheckedMetric) -> str | None:
    """Names what was judged in words; None for a whole run."""
    if checked.metric is None:
        return None
    return EXACT_LABELS.get(checked.metric) or metric_label(checked.metric)


def _text(name: str, **options: Any) -> Column:  # noqa: ANN401
    return Column(name, "string", **options)


_UNIT: Final = _text("unit", visibility="data", of=attrgetter("unit"))
_ENDS: Final = tuple(
    Column(name, "float64", "@unit", visibility="data", of=attrgetter(name))
    for name in ("low", "high")
)
_OF_A_RUN: Final = (
    _text("run", of=lambda run: f"#{run.id}"),
    _text("what", of=title_of),
    _text("device", of=attrgetter("device")),
)
_COMMIT: Final = _text("commit", of=format_commit)
_MEASURED: Final = _text("measured", of=lambda run: format_moment(run.measured_at))

RUNS: Final = Table(
    "history_runs",
    (
        *_OF_A_RUN, _MEASURED, replace(_COMMIT, dropped_first=1),
        _text("branch", of=lambda run: run.git_branch or MISSING, dropped_first=2),
        _text("inference", of=_outcome, styles=_STYLES),
    ),
)  # fmt: skip
METRICS_OF_A_RUN: Final = Table(
    "history_metrics",
    (
        _text("metric", of=lambda metric: metric_label(metric.name)), _UNIT, *_ENDS,
        Column(
            "median", "float64", "@unit", of=attrgetter("value"), bounds=("low", "high")
        ),
        Column("blocks", "Int64", "count", of=attrgetter("count")),
    ),
)  # fmt: skip
ARTEFACTS: Final = Table(
    "history_artefacts",
    (
        _text("artefact", of=lambda artefact: artefact[0]),
        _text("SHA-256", of=lambda artefact: artefact[1].get("sha256")),
        Column("size", "Int64", "bytes", of=lambda artefact: artefact[1].get("size_bytes")),
    ),
)
BASELINES: Final = Table(
    "history_baselines",
    (
        _text("baseline", of=lambda pair: pair[0].name),
        *_columns_via(itemgetter(1), *_OF_A_RUN, _COMMIT),
        _text("pinned", of=lambda pair: format_moment(pair[0].pinned_at)),
    ),
)
ACCEPTANCES: Final = Table(
    "history_acceptances",
    (
        *_columns_via(itemgetter(1), *_OF_A_RUN, replace(_COMMIT, dropped_first=3)),
        _text("by", dropped_first=1, of=lambda pair: pair[0].accepted_by),
        _text("accepted", dropped_first=2, of=lambda pair: format_moment(pair[0].accepted_at)),
        _text("why", of=lambda pair: pair[0].why),
    ),
)
NOISE: Final = Table(
    "history_noise",
    (
        _text("device", of=attrgetter("device")),
        _text("metric", of=lambda spread: metric_label(spread.metric)),
        Column("spread", "float64", "share", of=attrgetter("of_run")),
        Column("runs", "Int64", "count", of=attrgetter("runs")),
        Column("series", "Int64", "count", of=attrgetter("series")),
    ),
    title="What runs of one series differ by",
)
CHANGES: Final = Table(
    "history_changes",
    (
        *_columns_via(
            attrgetter("run"), *_OF_A_RUN[:2], replace(_OF_A_RUN[2], dropped_first=2),
            replace(_MEASURED, dropped_first=2),
        ),
        _text("commits", of=_commits),
        _UNIT,
        Column("before", "float64", "@unit", of=attrgetter("before")),
        Column("after", "float64", "@unit", of=attrgetter("after")),
        Column("change", "float64", "change", of=attrgetter("change")),
        Column("probability", "float64", "share", of=attrgetter("probability"), dropped_first=1),
        _text(
            "direction", title="", of=lambda change: "worse" if change.is_worse else "better",
            styles={"worse": "red", "better": "green"},
        ),
    ),
)  # fmt: skip
CHECK: Final = Table(
    "history_check",
    (
        _text("verdict", of=attrgetter("outcome"), styles=_STYLES),
        _text("run", of=lambda checked: _name(checked.run)),
        _text("metric", of=checked_label),
        _UNIT,
        Column("before", "float64", "@unit", title="baseline", dropped_first=2,
               of=attrgetter("before")),
        Column("after", "float64", "@unit", title="now", dropped_first=2, of=attrgetter("after")),
        *(
            Column(
                name, "float64", "change", visibility="everywhere" if name == "change" else "data",
                dropped_first=1, of=_judged(name),
                bounds=("low", "high") if name == "change" else None,
            )
            for name in ("low", "high", "change")
        ),
        Column(
            "smallest", "float64", "change", title="would be seen", dropped_first=3,
            of=_judged("smallest"),
            says="the least change for the worse that four of five such checks find",
        ),
        Column("p_value", "float64", "p", visibility="data", of=_judged("p_value")),
        _text("why", of=attrgetter("reason")),
    ),
)  # fmt: skip
_MARKED: Final = replace(CHECK.columns[0], of=lambda checked: _MARKS[checked.outcome], styles={})
_CHECK_IN_MARKDOWN: Final = replace(CHECK, columns=(_MARKED, *CHECK.columns[1:]))


def run_document(run: Run) -> dict[str, Any]:
    """Returns a run's facts for programs; its metrics are in `run_metrics`."""
    facts = {name: getattr(run, name) for name in TITLES}
    times = {name: getattr(run, name).isoformat() for name in ("measured_at", "added_at")}
    outcome = {name: getattr(run, name) for name in ("failure", "representative")}
    return {"run_id": run.id, "title": title_of(run), **facts, **times, **outcome}


def run_metrics(run: Run) -> dict[str, Any]:
    """Returns what was measured: times in ns, sizes in bytes."""
    return {"metrics": METRICS_OF_A_RUN.of(run.metrics).records()}


def brief_run(run: Run) -> Brief:
    """Returns what a run came to, then its facts; `--full` has its files too."""
    location = find_run_directory(run)
    # The store may be a stranger's.
    files = [(n, facts) for n, facts in sorted(run.artefacts.items()) if isinstance(facts, dict)]
    prepared = {
        "run_path": str(location.folder or f"{run.run_path or MISSING} ({location.reason})"),
        "pins": ", ".join(f"{name} {version}" for name, version in run.pins.items()),
        "artefacts": count_of(len(files), "file"),
    }
    facts = {title: prepared.get(name, getattr(run, name)) for name, title in TITLES.items()}
    facts |= {
        "measured": format_moment(run.measured_at),
        "status": run.status if run.failure is None else f"{run.status}: {run.failure}",
    }
    head = [AnswerLine(f"#{run.id} {title_of(run)}", "bold")]
    if not run.representative:
        head.append(AnswerLine("Emulated: its times mean nothing", "yellow"))
    lines = tuple(
        f"{title:24} {MISSING if fact is None else fact}" for title, fact in facts.items()
    )
    metrics, artefacts = METRICS_OF_A_RUN.of(run.metrics), ARTEFACTS.of(files)
    return Brief(tuple(head), table=metrics, lines=lines, details=(artefacts,))


def render_check(result: CheckResult, form: str) -> str:
    """Returns a check's result as `text`, `markdown` for a pull request, or `json`."""
    if form == "markdown":
        return _markdown(result)
    if form == "json":
        return json.dumps(_document(result), indent=2, ensure_ascii=False) + "\n"
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(check_on_terminal(result))
    return capture.get()


def brief_check(result: CheckResult) -> Brief:
    """Returns the headline, then what asks for something: the worst first, grouped by run."""
    urgent: dict[int, list[CheckedMetric]] = {}
    for checked in result.entries:
        if checked.outcome in _URGENT:
            urgent.setdefault(checked.run.id, []).append(checked)
    lines: list[str | AnswerLine] = []
    for entries in urgent.values():
        lines.append(_name(entries[0].run))
        lines += [
            AnswerLine(f"  {_one_line(checked)}", _STYLES.get(checked.outcome, ""))
            for checked in entries
        ]
    first = next(iter(urgent), None)
    ends = () if first is None else (f"The first of these: `etprof history show {first}`",)
    headline = AnswerLine(_headline(result), "bold red" if result.exit_code else "bold green")
    return Brief((headline,), lines=tuple(lines), ends=ends, details=(CHECK.of(result.entries),))


def _one_line(checked: CheckedMetric) -> str:
    """Says what became of a metric, or of a whole run."""
    return f"{checked.outcome}: {_what_changed(checked)}"


def _what_changed(checked: CheckedMetric, strong: str = "") -> str:
    """Says both values and the reason; `strong` stands around the metric."""
    if checked.metric is None or checked.judgement is None:
        return checked.reason
    label, unit = checked_label(checked), checked.unit or ""
    if checked.reason.startswith("exact: "):
        return f"{strong}{label}{strong} {checked.reason.removeprefix('exact: ')}"
    if checked.metric in EXACT_METRICS:
        values = " → ".join(describe_value(unit, v) for v in (checked.before, checked.after))
        return f"{strong}{label}{strong} {values}: {checked.reason}"
    values = f"{format_value(unit, checked.before)} → {format_value(unit, checked.after)}"
    change = format_value("change", checked.judgement.change)
    return f"{strong}{label}{strong} {values}, {change}"


def check_on_terminal(result: CheckResult) -> RenderableType:
    """Returns the table with every comparison and the headline below."""
    renderables: list[RenderableType] = []
    if result.entries:
        renderables.append(terminal_table(CHECK.of(result.entries)))
    renderables += [folded_text(f"First run: {_name(s)}") for s in result.without_baseline]
    return Group(*renderables, folded_text(_headline(result), style="bold"))


def _markdown(result: CheckResult) -> str:
    """Returns a comment: what needs eyes in at most 20 lines, the rest folded away."""
    urgent = [checked for checked in result.entries if checked.outcome in _URGENT]
    lines = [f"### etprof: {escape(_headline(result))}", ""]
    changes = _changes_of_runs(urgent)
    lines += [f"- {change}" for change in first_texts(changes, _MOST_SHOWN)]
    first_runs = [f"- First run: {escape(_name(run))}" for run in result.without_baseline]
    lines += first_runs[:_MOST_FIRST_RUNS]
    if result.entries:
        summary = f"All of {count_of(len(result.entries), 'comparison')}"
        rule = (
            f"A time counts beyond {_limit_of(result) * 100:g} % (or its metric's own threshold) and "
            "beyond chance, for all comparisons of this check together; inconclusive is neither good "
            "nor bad. Exact metrics are compared exactly."
        )
        lines += ["", f"<details><summary>{summary}</summary>", ""]
        lines += [*_markdown_table(list(result.entries)), rule, "", *first_runs[_MOST_FIRST_RUNS:]]
        lines.append("</details>")
    return "\n".join(lines).strip() + "\n"


def _changes_of_runs(urgent: list[CheckedMetric]) -> list[str]:
    """A line for each change, with the runs that have the same one."""
    runs_of_change: dict[tuple[str, str], list[Run]] = {}
    for checked in urgent:
        text = _what_changed(checked, _STRONG)
        runs_of_change.setdefault((_MARKS[checked.outcome], text), []).append(checked.run)
    names = _short_names({checked.run.id: checked.run for checked in urgent})
    count = len(names)
    lines = []
    for (mark, text), runs in runs_of_change.items():
        named = "" if len(runs) == count else f" ({', '.join(names[run.id] for run in runs)})"
        body = _STRONG.join(escape(part) for part in text.split(_STRONG))
        lines.append(f"{mark}: {body}{escape(named)}")
    return lines


def _short_names(runs: Mapping[int, Run]) -> dict[int, str]:
    """Names each run by what the others do not have too."""
    facts = {run_id: [*title_of(run).split(", "), run.device] for run_id, run in runs.items()}
    common = set.intersection(*map(set, facts.values())) if facts else set()
    return {
        run_id: " ".join(fact for fact in of_run if fact not in common) or f"#{run_id}"
        for run_id, of_run in facts.items()
    }


def _limit_of(result: CheckResult) -> float:
    threshold = result.request.threshold
    return DEFAULT_THRESHOLD if threshold is None else threshold


def _markdown_table(entries: list[CheckedMetric]) -> list[str]:
    return markdown_table(_CHECK_IN_MARKDOWN.of(entries))


def _document(result: CheckResult) -> dict[str, Any]:
    """Returns the same data for programs; times in ns, changes as fractions."""
    return {
        "schema_version": CHECK_VERSION,
        "baseline": result.request.baseline,
        "threshold": _limit_of(result),
        "thresholds": dict(result.request.thresholds),
        "exit_code": result.exit_code,
        "counts": result.counts,
        "entries": [_entry(checked) for checked in result.entries],
        "without_baseline": [_subject(run) for run in result.without_baseline],
    }


def _entry(checked: CheckedMetric) -> dict[str, Any]:
    fields_of = {field.name: getattr(checked, field.name) for field in fields(checked)}
    judgement = asdict(checked.judgement) if checked.judgement else None
    baseline = [_subject(run) for run in checked.baseline]
    del fields_of["run"]
    return {
        **fields_of,
        "subject": _subject(checked.run),
        "baseline": baseline,
        "judgement": judgement,
    }


def _subject(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "title": title_of(run),
        "measured_at": run.measured_at.isoformat(timespec="seconds"),
        **{name: getattr(run, name) for name in ("device", "git_commit", "git_branch")},
    }


def _headline(result: CheckResult) -> str:
    """Says in one line what came out."""
    outcomes = [
        count_of(count, outcome, outcome if outcome in _ADJECTIVES else None)
        for outcome, count in result.counts.items()
        if count
    ]
    if not result.entries:
        first_runs = count_of(len(result.without_baseline), "series", "series")
        return (
            f"First run of {first_runs}: nothing to compare with in {result.request.baseline} yet"
        )
    verdict = "worse than" if result.exit_code else "no regression against"
    text = f"{verdict} {result.request.baseline}: {', '.join(outcomes)}"
    if result.without_baseline:
        text += f"; first run of {count_of(len(result.without_baseline), 'series', 'series')}"
    return text[0].upper() + text[1:]


def _name(run: Run) -> str:
    return f"#{run.id} {title_of(run)} on {run.device}"
