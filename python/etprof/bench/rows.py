"""The rows of a matrix: one per experiment, and one per unit of which nothing is known but why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import format_value
from etprof.statistics.effect import estimate_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.bench.execution import UnitOutcome
    from etprof.bench.prompt_work import PromptWork
    from etprof.bench.session import StoredUnit
    from etprof.history.schema import Metric, Run
    from etprof.run.accuracy import TextQuality
    from etprof.statistics.effect import Effect

LLM_METRICS: Final = ("prefill_tokens_per_second", "decode_tokens_per_second")
_METRIC_FACTS: Final = ("unit", "higher_is_better", "value", "low", "high", "count")


@dataclass(frozen=True)
class BenchRow:
    """One experiment, or a unit of which nothing is known but why."""

    outcome: UnitOutcome
    run: Run | None
    effect: Effect | None
    """SME2 against off at the same thread count; on the row with SME2 only."""
    quality: TextQuality | None = None
    """Of a language model's program."""
    prompt_work: PromptWork | None = None
    """Of its prompt, on the row of every SME mode."""

    @property
    def failure(self) -> str | None:
        """Why there are no figures, or not all."""
        if self.run is not None:
            return self.run.failure
        return self.outcome.errors[0] if self.outcome.errors else None

    def metric(self, name: str) -> Metric | None:
        """A metric; None where there is none, and for emulated times."""
        if self.run is None or not self.run.representative:
            return None
        return next((metric for metric in self.run.metrics if metric.name == name), None)

    def value(self, name: str, end: str = "value") -> float | None:
        """A metric's median, or with `low` and `high` an end of its interval."""
        metric = self.metric(name)
        figure: float | None = None if metric is None else getattr(metric, end)
        return figure

    @property
    def remark(self) -> str:
        """What the figures do not say."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        if self.run is not None and not self.run.representative:
            return "emulated: kernels, no times"
        rates = [metric for name in LLM_METRICS if (metric := self.metric(name))]
        rate_texts = (f"{m.name.partition('_')[0]} {format_value(m.unit, m.value)}" for m in rates)
        return ", ".join(rate_texts)

    def document(self) -> dict[str, Any]:
        """The row for machines."""
        unit, run = self.outcome.unit, self.run
        return {
            "device": unit.device.name,
            "model": unit.model.name,
            "precision": unit.precision,
            "backend": unit.backend,
            "method": run.method if run else unit.model.method,
            "sme": run.sme_mode if run else None,
            "threads": run.threads if run else None,
            "status": run.status if run else "failed",
            "failure": self.failure,
            "representative": run.representative if run else None,
            "metrics": {
                metric.name: {name: getattr(metric, name) for name in _METRIC_FACTS}
                for metric in (run.metrics if run else ())
            },
            "sme2_speed_up": self.effect.speed_up if self.effect else None,
            "sme2_verdict": self.effect.verdict if self.effect else None,
            "run": run.run_name if run else None,
            "worker": self.outcome.worker or None,
            "duration_s": round(self.outcome.duration_s, 3),
        }


def make_rows(stored_units: Sequence[StoredUnit]) -> list[BenchRow]:
    """Returns the rows of all units, in their order."""
    rows: list[BenchRow] = []
    for unit in stored_units:
        runs = unit.runs
        rows += [
            BenchRow(unit.outcome, run, _effect_of(run, runs), unit.quality, unit.prompt_work)
            for run in runs
        ]
        if not runs:
            rows.append(BenchRow(unit.outcome, None, None))
    return rows


def _effect_of(run: Run, runs: Sequence[Run]) -> Effect | None:
    """Compares a run with SME2 with the one without, block by block as they alternated."""
    if run.sme_mode != "sme2" or not run.representative:
        return None
    for candidate in runs:
        if (candidate.sme_mode, candidate.threads) == ("off", run.threads):
            sides = [
                next((m.samples for m in side.metrics if m.name == "latency_ns"), ())
                for side in (candidate, run)
            ]
            equal = len(sides[0]) == len(sides[1]) > 0
            return estimate_effect(*sides) if equal else None
    return None
