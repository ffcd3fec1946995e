"""Judges what never varies: each metric with the side that is better, and the layers that changed.

Work that leaves SME makes most counts smaller, so a fall alone proves nothing. What is judged is
where the model's own work went: a metric of what is on SME becomes worse where more is off SME than
before, and only changes where the model itself has become another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from etprof.analysis.exact_facts import (
    EXACT_METRICS,
    ExactFacts,
    ExactMetric,
    LayerWork,
)
from etprof.base.units import first_texts, format_count
from etprof.history.gate import Judgement, Verdict
from etprof.history.schema import OperatorWork, Run, RunWork

_MODEL_MACS: Final = EXACT_METRICS["model_macs"].value_of
_NAMED: Final = 3
"""Layers or operators that a reason lists."""


@dataclass(frozen=True)
class WorkCount:
    """One count of `OperatorWork` as a metric; more is worse in all of them."""

    name: str
    label: str
    unit: str
    is_of_sme: bool = True
    """Whether it is zero for an operator that leaves SME."""


WORK: Final[Mapping[str, WorkCount]] = {
    "calls": WorkCount("kernel_calls", "Calls of microkernels", "count"),
    "macs": WorkCount("work_macs", "Multiply-accumulates on SME", "count"),
    "padded_macs": WorkCount("work_padded_macs", "Padding on SME", "count"),
    "steps": WorkCount("work_steps", "Steps on SME", "count"),
    "bytes": WorkCount("work_bytes", "Bytes of SME operands", "bytes"),
    "instructions": WorkCount("instructions", "Instructions", "count", is_of_sme=False),
}


EXACT_LABELS: Final[Mapping[str, str]] = {
    **{name: metric.label for name, metric in EXACT_METRICS.items()},
    **{count.name: count.label for count in WORK.values()},
}


@dataclass(frozen=True)
class ExactComparison:
    """One exact metric of a run beside another's."""

    metric: str
    unit: str
    before: float
    after: float
    judgement: Judgement


def facts_of(run: Run) -> ExactFacts | None:
    """Returns a run's exact facts; None of a run from before they were kept."""
    return ExactFacts.model_validate(run.exact_facts) if run.exact_facts else None


def work_of(run: Run) -> RunWork | None:
    """Returns what was counted of a run; None where nothing was."""
    return RunWork.model_validate(run.work) if run.work else None


def compare_facts(before: Run, now: Run) -> list[ExactComparison]:
    """Judges every exact metric that both runs have."""
    old, new = facts_of(before), facts_of(now)
    if old is None or new is None:
        return []
    return [
        comparison
        for name, metric in EXACT_METRICS.items()
        if (comparison := _compare(name, metric, old, new)) is not None
    ]


def _compare(
    name: str, metric: ExactMetric, old: ExactFacts, new: ExactFacts
) -> ExactComparison | None:
    before, after = metric.value_of(old), metric.value_of(new)
    if before is None or after is None:
        return None
    verdict = _verdict(metric, old, new, after - before, metric.tolerance(before))
    reason = "the same" if after == before else _describe_change(metric, old, new, verdict)
    return ExactComparison(
        name, metric.unit, before, after, _exact_judgement(verdict, before, after, reason)
    )


def _verdict(
    metric: ExactMetric, old: ExactFacts, new: ExactFacts, change: float, tolerance: float
) -> Verdict:
    """Says which side a change is on; `changed` where the model itself is another."""
    counterpart = metric.counterpart
    elsewhere = counterpart(new) - counterpart(old) if counterpart else 0.0
    if abs(change) <= tolerance:
        return "unchanged"
    if metric.better == "neither":
        return "changed"
    is_better = (change > 0) == (metric.better == "more")
    if counterpart is not None and (elsewhere >= 0 if is_better else elsewhere <= 0):
        return "changed"
    return "improvement" if is_better else "regression"


def _describe_change(
    metric: ExactMetric, old: ExactFacts, new: ExactFacts, verdict: Verdict
) -> str:
    """Names the layers that changed, the largest first, else why the verdict is this one."""
    texts = describe_layers(metric, old, new)
    if texts:
        return ", ".join(first_texts(texts, _NAMED, "layer"))
    return "within the tolerance" if verdict == "unchanged" else "another value"


def describe_layers(metric: ExactMetric, old: ExactFacts, new: ExactFacts) -> list[str]:
    """Returns what became of each layer that changed, the one with most work first."""
    if metric.describe_layer is None:
        return []
    before, now = _by_layer(old), _by_layer(new)
    changed: list[tuple[int, str]] = []
    for key in {**now, **before}:
        first, second = before.get(key, LayerWork()), now.get(key, LayerWork())
        text = metric.describe_layer(first, second)
        if text:
            title = (now.get(key) or first).title
            changed.append((max(first.macs, second.macs), f"{title} {text}"))
    return [text for _, text in sorted(changed, key=lambda layer: -layer[0])]


def _by_layer(facts: ExactFacts) -> dict[str, LayerWork]:
    """The work by module, whose line may have moved; of what is of no module, by line."""
    layers: dict[str, LayerWork] = {}
    for work in facts.layers:
        key = work.layer or work.source
        same = layers.get(key)
        layers[key] = work if same is None else work.model_copy(
            update={
                name: getattr(same, name) + getattr(work, name)
                for name in LayerWork.model_fields
                if name not in {"layer", "source"}
            }
        )  # fmt: skip
    return layers


def compare_work(before: Run, now: Run) -> list[ExactComparison]:
    """Judges every count of microkernels' work that both runs have at one vector length."""
    old, new = work_of(before), work_of(now)
    # How much is computed depends on the length.
    if old is None or new is None or old.svl_bits != new.svl_bits:
        return []
    has_instructions = old.has_instructions and new.has_instructions
    growth = _growth(before, now)
    return [
        _compare_work(field, count, old, new, growth)
        for field, count in WORK.items()
        if has_instructions or field != "instructions"
    ]


def _compare_work(
    field: str, count: WorkCount, old: RunWork, new: RunWork, growth: float | None
) -> ExactComparison:
    """Judges one count: one more is worse, one fewer is better, if the same products are on SME."""
    before, after = _total(old, field), _total(new, field)
    on_sme = _total(new, "macs") - _total(old, "macs")
    verdict: Verdict = "unchanged"
    if after != before:
        verdict = "regression" if after > before else "improvement"
        if on_sme and (count.is_of_sme or verdict == "improvement"):
            # More is worse where the model itself has more, and less where nobody knows that it has less.
            is_explained = growth is not None and (verdict == "improvement" or growth <= 0)
            verdict = "changed" if is_explained else "regression"
    differences = _describe_operators(field, old.operators, new.operators)
    return ExactComparison(
        count.name, count.unit, before, after,
        _exact_judgement(verdict, before, after, f"exact: {differences or 'the same'}"),
    )  # fmt: skip


def _growth(before: Run, now: Run) -> float | None:
    """By how many multiply-accumulates the model itself grew; None where nobody knows."""
    old, new = facts_of(before), facts_of(now)
    first, second = (_MODEL_MACS(facts) if facts else None for facts in (old, new))
    return None if first is None or second is None else second - first


def _total(work: RunWork, field: str) -> int:
    return sum(getattr(operator, field) for operator in work.operators.values())


def _describe_operators(
    field: str, before: Mapping[str, OperatorWork], now: Mapping[str, OperatorWork]
) -> str:
    """Names the operators whose counts differ, the largest difference first."""
    nothing = OperatorWork(calls=0)
    differing = [
        (name, old, new)
        for name in {**before, **now}
        if (old := getattr(before.get(name, nothing), field))
        != (new := getattr(now.get(name, nothing), field))
    ]
    differing.sort(key=lambda difference: -abs(difference[2] - difference[1]))
    texts = [f"{name} {format_count(old)} → {format_count(new)}" for name, old, new in differing]
    return ", ".join(first_texts(texts, _NAMED, "operator"))


def _exact_judgement(verdict: Verdict, before: float, after: float, reason: str) -> Judgement:
    change = after / before - 1 if before else None
    return Judgement(verdict, change, change, change, 0.0, reason, smallest=0.0)


def standing_run(
    candidate: Run,
    runs: Sequence[Run],
    compare: Callable[[Run, Run], list[ExactComparison]],
    accepted: Collection[int],
) -> Run | None:
    """Returns the newest run that is comparable with the candidate and not worse than those before.

    A run that was worse stands for nothing until somebody accepts it.

    Args:
        candidate: The run that is to be judged.
        runs: Earlier runs of its series, oldest first.
        compare: What judges a run against another.
        accepted: Runs that stand however they compare.
    """
    known_metrics = [len(compare(run, candidate)) for run in runs]
    most_metrics = max(known_metrics, default=0)
    standing: Run | None = None
    for run, count in zip(runs, known_metrics, strict=True):
        if count == 0 or count < most_metrics:
            continue
        if (
            standing is None
            or run.id in accepted
            or _has_same_facts(standing, run)
            or not is_worse(compare(standing, run))
        ):
            standing = run
    return standing


def _has_same_facts(first: Run, second: Run) -> bool:
    """Whether nothing exact differs, told without reading it."""
    return first.exact_facts == second.exact_facts and first.work == second.work


def is_worse(comparisons: Sequence[ExactComparison]) -> bool:
    """Whether any metric is a regression."""
    return any(comparison.judgement.verdict == "regression" for comparison in comparisons)
