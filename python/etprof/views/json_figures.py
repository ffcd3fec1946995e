"""The unit and basis of every number in the JSON of an analysis, a comparison, several runs.

Where a part of the JSON is a table, they are what its columns declare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etprof.tables import comparisons, findings, kernels, measurement, operators, quality
from etprof.tables.alternatives import TOGETHER

if TYPE_CHECKING:
    from etprof.tables.table import Basis, Column, Table


@dataclass(frozen=True)
class Figure:
    """A number in JSON: where it stands, and what it is."""

    path: str
    """Names with dots between; `*` stands for any name, and `[]` for each of a list."""
    unit: str
    basis: Basis
    says: str = ""


def _of_table(path: str, table: Table) -> tuple[Figure, ...]:
    """The numbers of a table's records under the path."""
    return tuple(
        Figure(f"{path}.{c.name}", json_unit(c), table.basis_of(c), c.says)
        for c in table.columns
        if c.is_number and not c.goes_with
    )


def json_unit(column: Column) -> str:
    """Returns a column's unit as programs read it, without what people see beside it."""
    if column.unit == "@rate_limit":
        return {"gflops": "GFLOP/s", "gigabytes_per_s": "GB/s"}[column.name]
    return column.unit.removeprefix("±").replace("@unit", "`unit`")


def _interval(path: str, unit: str, basis: Basis) -> tuple[Figure, ...]:
    return (
        Figure(f"{path}.low", unit, basis, "lower end"),
        Figure(f"{path}.high", unit, basis, "upper end"),
        Figure(f"{path}.confidence", "share", "per interval", "how often such intervals hold it"),
    )


def _over_launches(path: str, unit: str, basis: Basis, says: str) -> tuple[Figure, ...]:
    """A median over launches, as `BlockedMedian` has it."""
    return (
        Figure(f"{path}.median", unit, basis, f"{says}, median over launches"),
        *_interval(f"{path}.interval", unit, basis),
        Figure(f"{path}.block_medians[]", unit, basis, "the median of each launch"),
    )


def _effect(path: str, basis: Basis) -> tuple[Figure, ...]:
    return (
        Figure(f"{path}.pairs", "count", "over the run", "pairs of launches; 0 of separate runs"),
        Figure(f"{path}.speed_up", "ratio", basis, "baseline ÷ candidate"),
        *_interval(f"{path}.interval", "ratio", basis),
        Figure(f"{path}.p_value", "p", "per comparison", "two-sided, of no effect"),
        Figure(f"{path}.margin", "share", "per comparison", "what counts as no difference"),
        Figure(f"{path}.log_ratios[]", "ln ratio", basis, "of each pair"),
    )


def _under(path: str, figures: Iterable[Figure]) -> tuple[Figure, ...]:
    return tuple(replace(figure, path=f"{path}.{figure.path}") for figure in figures)


_VERSION: Final = Figure("schema_version", "version", "per document")
_SPEED: Final = (
    *_over_launches("time_to_first_token_ns", "ns", "per prompt", "up to the first token"),
    *_over_launches("cold_first_token_ns", "ns", "per launch", "loading, up to the first token"),
    *_over_launches("prefill_tokens_per_second", "1/s", "per token", "of the prompt"),
    *_over_launches("decode_tokens_per_second", "1/s", "per token", "after the first"),
    *_over_launches("token_mean_ns", "ns", "per token", "mean after the first"),
    *_over_launches("token_latency_ns", "ns", "per token", "median of these"),
    *_over_launches("token_p90_ns", "ns", "per token", "90th percentile of these"),
    *_over_launches("token_p99_ns", "ns", "per token", "99th percentile of these"),
    *_over_launches("positions[].latency_ns", "ns", "per token", "mean of these positions"),
    Figure("positions[].first", "count", "position", "place in the cache, from 0"),
    Figure("positions[].last", "count", "position"),
    Figure("tokens", "count", "over the run", "after the first, of all launches"),
    Figure("tokens_of_a_launch", "count", "per launch", "the fewest"),
)  # fmt: skip
_GENERATED: Final = (
    Figure("prompt_tokens[]", "token id", "position"),
    Figure("tokens[]", "token id", "position", "the new ones"),
    Figure("prefilled_tokens", "count", "per prompt", "that the prefill method read"),
    Figure("differing_blocks[]", "count", "position", "launches that generated other tokens"),
    *_under("speed", _SPEED),
)
_LATENCY: Final = (
    *_over_launches("load_ns", "ns", "per load", "loading the program"),
    *_over_launches("first_inference_ns", "ns", "per inference", "the first after loading"),
    *_over_launches("given_ns", "ns", "per inference", "giving the inputs"),
    *_over_launches("taken_ns", "ns", "per inference", "taking the outputs"),
    *_over_launches("steady_ns", "ns", "per inference", "after warm-up, without event tracer"),
    Figure("inferences_per_sample", "count", "per sample", "that one reading of the clock times"),
    Figure("samples.count", "count", "over the run"),
    Figure("samples.outliers", "count", "over the run"),
    Figure("samples.variation", "share", "per inference", "standard deviation ÷ mean"),
    *(
        Figure(f"samples.{name}", "ns", "per inference", "of the samples of all launches")
        for name in (
            "median", "mean", "standard_deviation", "minimum", "maximum", "p10", "p25", "p75", "p90",
            "p95", "p99", "trimmed_mean",
        )
    ),
    Figure("peak_rss_bytes", "bytes", "per launch", "peak memory of the process"),
    Figure("rss_after_load_bytes", "bytes", "per launch", "what loading added to its memory"),
    Figure("planned_buffers_bytes", "bytes", "per program", "planned memory"),
)  # fmt: skip
_CATEGORY_MEANS: Final = "mean of the executions of the split"
_EXPERIMENT: Final = (
    Figure("threads", "count", "per launch"),
    Figure("executions", "count", "over the split", "that the split counts"),
    Figure("left_out.recorded", "count", "over the run", "executions recorded"),
    Figure("left_out.impossible", "count", "over the run", "of them without possible times"),
    Figure("left_out.disturbed", "count", "over the run", "of them far from the median"),
    *_under("generation", _GENERATED),
    *_of_table("operators[]", operators.OPERATORS),
    *_under("latency", _LATENCY),
    Figure("execute_mean_ns", "ns", "per inference", "`Method::execute`, event tracer on"),
    Figure("execute_total_ms", "ms", "per inference", "deprecated: `execute_mean_ns`"),
    Figure("execute_median_ns", "ns", "per inference", "`Method::execute`, event tracer on"),
    Figure("first_execute_ns", "ns", "per inference", "the first after loading"),
    Figure("load_events_ns.*", "ns", "per load", "events of loading"),
    Figure("category_means_ms.*", "ms", "per inference", _CATEGORY_MEANS),
    Figure("category_totals_ms.*", "ms", "per inference", "deprecated: `category_means_ms`"),
    *_of_table("categories[]", operators.CATEGORIES),
    Figure("overheads[].mean_ns", "ns", "per inference"),
    Figure("overheads[].share", "share", "per inference", "of `Method::execute`"),
)
_COMPARISON: Final = (
    _VERSION,
    Figure("baseline.threads", "count", "per launch"),
    Figure("candidate.threads", "count", "per launch"),
    *_of_table("operators[]", comparisons.OPERATOR_CHANGES),
    Figure("operators[].speed_up_interval_over_calls[]", "ratio", "per inference", "both ends"),
    Figure("tokens.first_difference", "count", "position", "of the first other token"),
    *_effect("latency", "per inference"),
    Figure("cold_start[].baseline", "`unit`", "by row", "`label` says of what"),
    Figure("cold_start[].candidate", "`unit`", "by row"),
    *_effect("cold_start[].effect", "by row"),
    *_of_table("categories.*", comparisons.CATEGORY_CHANGES),
    *_of_table("classes[]", comparisons.CLASS_CHANGES),
    Figure("waterfall.baseline_ns", "ns", "per inference", "`Method::execute`, event tracer on"),
    Figure("waterfall.candidate_ns", "ns", "per inference"),
    Figure("waterfall.residual_ns", "ns", "per inference", "what the steps leave"),
    *_of_table("waterfall.steps[]", comparisons.WATERFALL),
    Figure("amdahl.accelerated_operators", "count", "per program"),
    Figure("amdahl.accelerated_share", "share", "per inference", "of the baseline's time"),
    Figure("amdahl.accelerated_speed_up", "ratio", "per inference", "of these operators"),
    Figure("amdahl.achieved", "ratio", "per inference", "of `Method::execute`, event tracer on"),
    Figure("amdahl.ceiling", "ratio", "per inference", "if these operators took no time"),
    *_of_table("amdahl.bottlenecks[]", comparisons.BOTTLENECKS),
)
_FINDINGS: Final = (
    Figure("findings[].gain_ns", "ns", "per inference", "at most, beside the findings above"),
    *_interval("findings[].interval", "ns", "per inference"),
    Figure("findings[].together_ns", "ns", "per inference", "with the findings above"),
    *_of_table("reference_answers[]", findings.REFERENCE),
    Figure("why_not_sme2[].mean_ns", "ns", "per inference"),
    Figure("why_not_sme2[].gain_ns", "ns", "per inference"),
)
_ANALYSIS: Final = (
    _VERSION,
    Figure("executions.*", "count", "over the split", "by experiment"),
    Figure("category_means_ms.*.*", "ms", "per inference", _CATEGORY_MEANS),
    Figure("category_totals_ms.*.*", "ms", "per inference", "deprecated: `category_means_ms`"),
    *_under("experiments.*", _EXPERIMENT),
    *_under("comparisons[]", _COMPARISON),
    Figure("thread_map.cells[].threads", "count", "per launch"),
    Figure("thread_map.cells[].median_ns", "ns", "per inference", "without event tracer"),
    Figure("thread_map.best.threads", "count", "per launch"),
    Figure("thread_map.crossover_threads", "count", "per launch", "from which on off is faster"),
    *_of_table("tracer_costs[]", measurement.TRACER_COSTS),
    *_of_table("kernel_evidence.modes[]", kernels.MODES),
    *_of_table("kernel_evidence.operators[]", kernels.KERNELS),
    *_of_table("kernel_evidence.calls[]", kernels.USES),
    *_of_table("kernel_evidence.work[]", kernels.WORK),
    *_of_table("kernel_evidence.phases[]", kernels.PHASES),
    *_of_table("outputs[]", comparisons.OUTPUTS),
    *_of_table("accuracy[]", comparisons.ACCURACY),
    *_of_table("generation[]", quality.GENERATION),
    *_under("findings[]", _FINDINGS),
)
_SIDE_BY_SIDE: Final = (
    _VERSION,
    *(figure for name, table in TOGETHER.items() for figure in _of_table(f"{name}[]", table)),
)
DOCUMENTS: Final = {
    "analyze": _ANALYSIS,
    "compare": (*_COMPARISON, *_under("comparisons[]", _COMPARISON)),
    "report": (_VERSION, *_under("runs", _SIDE_BY_SIDE)),
}
"""The numbers of each command's JSON; `profile`, `run` and `report.json` have that of `analyze`."""
