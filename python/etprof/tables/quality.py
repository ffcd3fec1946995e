"""What a language model's program makes of a text, beside the speed of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.generation import trace_step
from etprof.tables.table import Column, Table, estimate

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from etprof.analysis.generation import StepTraffic
    from etprof.analysis.insight import ExperimentInsight
    from etprof.run.accuracy import TextQuality

ANSWER_STYLES: Final = {"passed": "green", "failed": "bold red", "unknown": "yellow"}


def quality_columns(of: Callable[[Any], TextQuality | None]) -> tuple[Column, ...]:
    """Returns the columns that stand beside each speed; all are missing where nobody knows."""

    def read(name: str) -> Callable[[Any], Any]:
        def value(subject: Any) -> Any:  # noqa: ANN401 - each table has its own subjects
            quality = of(subject)
            return None if quality is None else getattr(quality, name)

        return value

    def answer(subject: Any) -> str | None:  # noqa: ANN401 - each table has its own subjects
        quality = of(subject)
        return None if quality is None else quality.verdict.answer

    return (
        Column("perplexity", "float64", "1", basis="per text", of=read("perplexity"),
               says="of the text that the export read, e to the mean negative log-probability of the "
               "next token"),
        Column("perplexity_ratio", "float64", "1", basis="per text", title="÷ float32", of=read("perplexity_ratio"),
               says="÷ that of the float32 model: 1 costs nothing"),
        Column("same_tokens", "float64", "share", basis="per text", title="tokens as float32's", of=read("agreement"),
               says="new tokens that the float32 model gives too, before the first other one"),
        Column("same_top1", "float64", "share", basis="per text", visibility="page", of=read("same_top1"),
               says="places of the text at which the most likely token is the float32 model's"),
        Column("divergence_nats", "float64", "nats", basis="per text", visibility="page", of=read("divergence_nats"),
               says="mean Kullback-Leibler divergence from the float32 model's probabilities"),
        Column("quality", "string", of=answer, styles=ANSWER_STYLES,
               says="the verdict on that: passed, failed or unknown; missing where no text was read"),
    )  # fmt: skip


def _speed(insight: ExperimentInsight, name: str) -> Any:  # noqa: ANN401 - a BlockedMedian or None
    return getattr(insight.experiment.generation, name, None)


def _rate(name: str, title: str, says: str) -> tuple[Column, ...]:
    def value(insight: ExperimentInsight) -> float | None:
        rate = _speed(insight, name)
        return None if rate is None else float(rate.median)

    return estimate(
        name, "1/s", lambda e: _speed(e, name), value, title=title, says=says,
        interval="its 95 % interval over launches",
    )  # fmt: skip


def _traffic(insight: ExperimentInsight) -> StepTraffic | None:
    experiment = insight.experiment
    report = experiment.program.report
    step = None if report is None else report.step_bytes
    return trace_step(step, experiment.generation, insight.roofs)


def _of_traffic(getter: Callable[[StepTraffic], float | None]) -> Callable[[Any], Any]:
    def value(insight: ExperimentInsight) -> float | None:
        traffic = _traffic(insight)
        return None if traffic is None else getter(traffic)

    return value


def _generates(insight: ExperimentInsight) -> bool:
    metrics = insight.experiment.metrics
    return metrics is not None and metrics.generated is not None


GENERATION: Final = Table(
    "generation",
    (
        Column("experiment", "string", of=lambda i: i.experiment.name, says="experiment of the run"),
        *_rate("prefill_tokens_per_second", "prefill", "tokens of the prompt a second"),
        *_rate("decode_tokens_per_second", "decode", "new tokens after the first a second"),
        *quality_columns(lambda i: i.experiment.program.quality),
        Column("step_bytes", "Int64", "bytes", title="read for a token",
               of=_of_traffic(lambda t: t.step.total),
               says="what one step of decode has to read: weights as stored, rows of tables, and the whole "
               "cache once"),
        Column("step_cache_bytes", "Int64", "bytes", visibility="page",
               of=_of_traffic(lambda t: t.step.caches), says="of these, the cache"),
        Column("step_rate", "float64", "GB/s", is_timed=True, title="that is",
               of=_of_traffic(lambda t: t.gigabytes_per_s),
               says="these bytes by the mean latency of a token, in 10⁹ a second"),
        Column("of_stream", "float64", "share", is_timed=True, title="of the bandwidth",
               of=_of_traffic(lambda t: t.of_stream),
               says="÷ the fastest stream of that size on the device; missing where `etprof calibrate "
               "--peaks` has not measured it in this SME mode at these threads"),
    ),
    title="Speed and quality",
    from_each="insight",
    rows_of=lambda i: [i] if _generates(i) else [],
    says="one row per experiment that generated tokens",
    basis="per token",
)  # fmt: skip
