"""The unit and basis of every number in the JSON of an analysis, a comparison, several runs.

Where a part of the JSON is a table, they are what its columns declare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etprof.tables import (
    comparisons,
    export,
    findings,
    kernels,
    measurement,
    numerics,
    operators,
    quality,
)
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
    if column.unit == "scientific":
        return "1"
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


def _estimate(path: str, says: str) -> tuple[Figure, ...]:
    """A share with its interval, as `Estimate` has it."""
    return (
        Figure(f"{path}.value", "share", "per comparison", says),
        Figure(f"{path}.low", "share", "per comparison", "lower end"),
        Figure(f"{path}.high", "share", "per comparison", "upper end"),
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
_CATEGORY_MEANS: Final = "mean of the executions of the split; `Other` includes overhead"
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
    *_of_table("structure[]", comparisons.STRUCTURE),
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
    Figure("findings[].time_ns", "ns", "per inference", "of what it is about"),
    Figure(
        "findings[].gain_ns", "ns", "per inference", "of its command, beside the findings above"
    ),
    *_interval("findings[].interval", "ns", "per inference"),
    Figure("findings[].operators", "count", "per program", "that its command is for"),
    Figure("findings[].replaced_operators", "count", "per program", "of them, by the command"),
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
_VERDICT: Final = (
    Figure("output", "count", "position", "the one that decides"),
    Figure("step", "count", "position", "the inference that decides"),
    Figure("snr_db", "dB", "per output", "signal to noise"),
    Figure("least_snr_db", "dB", "per output", "what is asked for"),
    Figure("cosine", "1", "per output", "of the angle between both"),
    Figure("top1", "share", "per output", "rows with the largest entry at the same place"),
    Figure("equal_share", "share", "per output", "whole numbers that are equal"),
    Figure("least_equal_share", "share", "per output", "what is asked for"),
)
_TENSOR: Final = (
    Figure("index", "count", "position", "among inputs or outputs"),
    Figure("shape[]", "count", "per program", "values along each dimension"),
    Figure("dim_order[]", "count", "position", "dimensions as they lie in memory"),
    Figure("size_bytes", "bytes", "per program", "of its file"),
)
_CHECK: Final = (
    *_under("verdicts[]", _VERDICT),
    Figure("minimum_snr_db", "dB", "per output", "what is asked for"),
    Figure("floors.snr_db", "dB", "per output", "what the precision is asked for"),
    Figure("floors.cosine", "1", "per output", "the same"),
    Figure("floors.top1", "share", "per output", "the same"),
    Figure("outputs[].index", "count", "position"),
    Figure("outputs[].step", "count", "position", "the inference"),
    Figure("outputs[].snr_db", "dB", "per output", "program to float32"),
    Figure("outputs[].snr_db_converted", "dB", "per output", "program to the converted model"),
    Figure("outputs[].snr_db_precision", "dB", "per output", "converted model to float32"),
    Figure("outputs[].cosine", "1", "per output"),
    Figure("outputs[].max_abs_error", "1", "per output", "largest absolute difference"),
    Figure("outputs[].top1_agreement", "share", "per output"),
    Figure("outputs[].equal_share", "share", "per output", "whole numbers that are equal"),
    Figure("further_inputs[].snr_db", "dB", "per output", "program to float32"),
    Figure(
        "further_inputs[].snr_db_converted", "dB", "per output", "program to the converted model"
    ),
    Figure("bundle.absolute_tolerance", "1", "per output"),
    Figure("bundle.relative_tolerance", "share", "per output"),
)
_QUALITY: Final = (
    Figure("tokens", "count", "per text", "that are predicted"),
    Figure("vocabulary", "count", "per program", "tokens that there are"),
    Figure("perplexity", "1", "per text"),
    Figure("eager_perplexity", "1", "per text", "the float32 model's"),
    Figure("same_top1", "share", "per text", "places with float32's most likely token"),
    Figure("divergence_nats", "nats", "per token", "mean over the text"),
    Figure("layers[].divergence_nats", "nats", "per token", "with this layer alone rounded"),
    Figure("prompt_tokens", "count", "per prompt"),
    Figure("new_tokens", "count", "per prompt", "that are generated"),
    Figure("same_tokens", "count", "per prompt", "new ones before the first other one"),
    *_under("verdict", _VERDICT),
)
_MANIFEST: Final = (
    _VERSION,
    *(
        Figure(f"{name}.size_bytes", "bytes", "per program", "of the file")
        for name in ("pte", "ptd", "etrecord", "bundle")
    ),
    Figure("stages[].start_ns", "ns", "per export", "since the export began"),
    Figure("stages[].duration_ns", "ns", "per export"),
    Figure("rewrites[].operators", "count", "per program", "that it changed"),
    Figure("scopes[].operators", "count", "per program", "that it holds"),
    Figure("scopes[].quantized", "count", "per program", "of them quantised"),
    *(
        figure
        for tensors in (
            "inputs", "references", "converted", "step_inputs", "steps[].references",
            "steps[].converted",
        )
        for figure in _under(f"methods.*.{tensors}[]", _TENSOR)
    ),
    Figure("methods.*.steps[].step", "count", "position", "the inference"),
    Figure("methods.*.widened.*", "count", "per program", "operators computed in float32, by kind"),
    Figure("methods.*.clamped.*", "count", "per program", "operators with a constant cut to 16 bits, by kind"),
    *_under("methods.*.check", _CHECK),
    *_under("quality", _QUALITY),
)  # fmt: skip
_OPERATOR: Final = (
    Figure("debug_handle", "count", "position", "its number in the exported graph"),
    Figure("macs", "count", "per call"),
    Figure("input_bytes", "bytes", "per call"),
    Figure("output_bytes", "bytes", "per call"),
    Figure("permutation[]", "count", "position", "of a transpose"),
    Figure("readers", "count", "per program", "operators that take its result"),
)
_DELEGATION: Final = (
    _VERSION,
    *_under("methods.*.operators[]", _OPERATOR),
    *_under("methods.*.delegates[].nodes[]", _OPERATOR),
    *(
        Figure(f"methods.*.{name}", "count", "position")
        for name in (
            "operators[].delegate", "operators[].instruction", "operators[].origin.source.line",
            "delegates[].instruction", "delegates[].nodes[].index", "delegates[].nodes[].inputs[]",
            "delegates[].nodes[].output", "delegates[].nodes[].origins[].source.line",
            "memory.tensors_at_peak[].arena",
            "memory.tensors_at_peak[].first_use", "memory.tensors_at_peak[].last_use",
        )
    ),
    Figure("methods.*.operators[].held_bytes", "bytes", "per program", "constants that it keeps"),
    Figure("methods.*.operators[].shape[]", "count", "per call", "values along each dimension"),
    Figure("methods.*.delegates[].blob_bytes", "bytes", "per program", "of its graph"),
    Figure("methods.*.delegates[].weight_bytes", "bytes", "per program"),
    Figure("methods.*.memory.arena_bytes[]", "bytes", "per program", "of each arena"),
    Figure("methods.*.memory.peak_live_bytes", "bytes", "per inference", "alive at once at most"),
    Figure("methods.*.memory.unshared_bytes", "bytes", "per program", "without sharing"),
    Figure("methods.*.memory.tensors_at_peak[].offset_bytes", "bytes", "position", "in the arena"),
    Figure("methods.*.memory.tensors_at_peak[].size_bytes", "bytes", "per program"),
    Figure("methods.*.summary.macs", "count", "per inference"),
    *(
        Figure(f"methods.*.summary.{name}", "count", "per program")
        for name in ("delegate_calls", "delegated_operators", "undelegated_operators")
    ),
    Figure("methods.*.summary.delegated_operator_share", "share", "per program", "of operators"),
    Figure("methods.*.summary.delegated_macs_share", "share", "per inference", "of all MACs"),
    Figure("methods.*.summary.predicted_sme2_macs_share", "share", "per inference", "of all MACs"),
    *(
        Figure(f"size.{name}_bytes", "bytes", "per program")
        for name in (
            "total", "program", "delegate", "constant", "padding", "external", "external_weight",
        )
    ),
)  # fmt: skip
_CANDIDATE: Final = (
    Figure("number", "count", "position", "in the order of trials"),
    Figure("applied[].operators", "count", "per program", "that the rewrite changed"),
    Figure("macs", "count", "per inference"),
    Figure("macs_without_sme2", "count", "per inference", "of them without an SME2 kernel"),
    Figure("delegate_calls", "count", "per inference"),
    Figure("outside", "count", "per program", "operators outside the delegate"),
    Figure("transposes", "count", "per program", "inside the delegate"),
    Figure("size_bytes", "bytes", "per program"),
    Figure("planned_bytes", "bytes", "per program", "planned memory"),
    Figure("snr_db", "dB", "per output", "the worst to eager float32"),
    Figure("spare_db", "dB", "per output", "the least above what the precision is held to"),
    Figure("losses_db[]", "dB", "per output", "input by input, against the plain program"),
    Figure("counted.sme2_calls", "count", "per inference", "of microkernels that compute"),
    Figure("counted.macs_on_sme2", "count", "per inference"),
    Figure("counted.snr_db", "dB", "per output", "of the worst SME mode"),
)
_GAIN: Final = (
    Figure("gains[].pairs", "count", "over the run", "blocks of launches"),
    Figure("gains[].speed_up", "ratio", "per inference", "the other's latency ÷ its own"),
    Figure("gains[].low", "ratio", "per inference", "lower end of its interval"),
    Figure("gains[].high", "ratio", "per inference", "upper end"),
)
_OPTIMIZATION: Final = (
    _VERSION,
    Figure(
        "tolerance_db", "dB", "per output", "how much lower the SNR against eager float32 may be"
    ),
    *_under("baseline", _CANDIDATE),
    *_under("best", _CANDIDATE),
    *_GAIN,
    Figure("steps[].operators", "count", "per program", "that the rewrite changed"),
    *_under("steps[].without", _CANDIDATE),
    *_under("steps[]", _GAIN),
    *_under("trials[]", _CANDIDATE),
    *_under("timings[]", _GAIN),
)
_PEAKS: Final = (
    _VERSION,
    Figure("peaks[].low", "10⁹/s", "per device", "operations or bytes, lower end"),
    Figure("peaks[].high", "10⁹/s", "per device", "operations or bytes, upper end"),
    Figure("peaks[].threads", "count", "per launch"),
    Figure("peaks[].launches", "count", "over the run"),
    Figure("peaks[].moved_bytes", "bytes", "per call"),
    Figure("peaks[].least_ns", "ns", "per call", "mean in the fastest launch"),
)
_TEXT_QUALITY: Final = tuple(
    Figure(c.name, json_unit(c), c.basis, c.says)
    for c in quality.quality_columns(lambda subject: subject)
    if c.is_number
)
_NUMERICS: Final = (
    _VERSION,
    Figure("checks.*.snr_db", "dB", "per output", "signal to noise with and without taps"),
    Figure("checks.*.max_abs", "1", "per output", "largest difference with and without taps"),
    Figure("checks.*.nonfinite", "count", "per output", "values that are NaN on one side only"),
    *_of_table("operators[]", numerics.OPERATORS),
)
_BENCH: Final = (
    _VERSION,
    Figure("rows[].threads", "count", "per launch"),
    Figure("rows[].metrics.*.value", "`unit`", "by row", "the metric's name says of what"),
    Figure("rows[].metrics.*.low", "`unit`", "by row"),
    Figure("rows[].metrics.*.high", "`unit`", "by row"),
    Figure("rows[].metrics.*.count", "count", "over the run", "launches"),
    Figure("rows[].sme2_speed_up", "ratio", "per inference", "SME off ÷ SME2"),
    Figure("rows[].duration_s", "s", "over the run", "that measuring it took"),
    Figure("language_models[].tokens_per_second", "1/s", "per token", "`test` says which"),
    Figure("language_models[].low", "1/s", "per token"),
    Figure("language_models[].high", "1/s", "per token"),
    Figure("language_models[].peak", "bytes", "per launch", "peak memory of the process"),
    *_under("language_models[]", _TEXT_QUALITY),
    Figure("prompt_lengths[].threads", "count", "per launch"),
    Figure("prompt_lengths[].prompt_tokens", "count", "per prompt"),
    Figure("prompt_lengths[].off_rate", "1/s", "per token", "of the prompt, SME off"),
    Figure("prompt_lengths[].on_rate", "1/s", "per token", "of the prompt, SME2"),
    Figure("prompt_lengths[].speed_up", "ratio", "per token", "SME off ÷ SME2"),
    Figure("prompt_lengths[].speed_up_low", "ratio", "per token"),
    Figure("prompt_lengths[].speed_up_high", "ratio", "per token"),
    Figure("prompt_lengths[].at_once", "count", "per prompt", "tokens that are read at once"),
    Figure("prompt_lengths[].sme_macs", "count", "per prompt", "multiply-accumulates on SME"),
    Figure("sme2_pays[].from_length", "count", "per prompt", "tokens"),
)
_STORED_RUN: Final = (
    Figure("run_id", "count", "position", "its number in the history"),
    Figure("threads", "count", "per launch"),
    Figure("artefacts.*.size_bytes", "bytes", "per program", "of the file"),
)
_CHECKED: Final = (
    _VERSION,
    Figure("threshold", "share", "per comparison"),
    Figure("thresholds.*", "share", "per comparison", "by metric"),
    Figure("exit_code", "code", "per document"),
    Figure("counts.*", "count", "per document", "entries by verdict"),
    Figure("entries[].subject.run_id", "count", "position"),
    Figure("entries[].baseline[].run_id", "count", "position"),
    Figure("entries[].before", "`unit`", "by row", "`metric` says of what"),
    Figure("entries[].after", "`unit`", "by row"),
    Figure("entries[].judgement.change", "share", "by row", "of `before`"),
    Figure("entries[].judgement.low", "share", "by row", "lower end of its interval"),
    Figure("entries[].judgement.high", "share", "by row", "upper end"),
    Figure("entries[].judgement.threshold", "share", "per comparison"),
    Figure("entries[].judgement.p_value", "p", "per comparison", "of no change"),
    Figure("entries[].judgement.smallest", "share", "by row", "minimum detectable change"),
    Figure("without_baseline[].run_id", "count", "position"),
)
_CHANGES: Final = (
    _VERSION,
    Figure("changes[].before", "`unit`", "by row", "`metric` says of what"),
    Figure("changes[].after", "`unit`", "by row"),
    Figure("changes[].change", "share", "by row", "of `before`"),
    Figure("changes[].probability", "p", "per comparison", "of the change"),
)
_CALIBRATION: Final = (
    _VERSION,
    Figure("measured_pairs", "count", "over the run", "of launches"),
    Figure("pairs", "count", "per comparison", "of launches"),
    *_estimate("noise", "standard deviation of the pairs' log ratios"),
    *_estimate("smallest_effect", "least speedup - 1 that 80 % of comparisons find"),
    Figure("comparisons", "count", "over the run"),
    Figure("false_alarms", "count", "over the run", "comparisons that found a difference"),
    Figure("most_false_alarms", "share", "per comparison", "upper bound of their rate"),
    *_effect("overall", "per inference"),
    Figure("between_runs.runs", "count", "over the run"),
    *_estimate("between_runs.spread", "standard deviation of a run's log value"),
    *_estimate("between_runs.smallest_effect", "the same of one run per side"),
)
_RUN_IDS: Final = Figure("run_ids[]", "count", "position", "in the history")
_PLANNED_RUN: Final = (
    Figure("model.generation.new_tokens", "count", "per prompt", "that are generated"),
    Figure("model.generation.prompt_length", "count", "per prompt", "tokens"),
    Figure("model.generation.prompt_tokens[]", "count", "position", "in the vocabulary"),
    Figure("device.cpus[]", "count", "position", "cores that the program is kept on"),
    Figure("device.reconnect_s", "s", "per device", "that a lost one is waited for"),
    Figure("threads[]", "count", "per launch"),
    Figure("measurement.blocks", "count", "over the run", "launches of each experiment"),
    Figure("measurement.warmup", "count", "per launch", "inferences before it is timed"),
    Figure("measurement.iterations", "count", "per launch", "inferences at least"),
    Figure("measurement.min_seconds", "s", "per launch", "of timed inferences at least"),
    Figure("measurement.cool_down_s", "s", "per launch", "of rest before it"),
    Figure("measurement.max_wait_s", "s", "per launch", "that it waits for a cool device at most"),
    Figure("measurement.max_start_temperature_c", "°C", "per launch", "that it may start at"),
    Figure("measurement.timeout_s", "s", "per launch", "at most"),
    Figure("measurement.operator_launches", "count", "over the run", "with the tracer"),
    Figure("measurement.operator_iterations", "count", "per launch", "with the tracer"),
    Figure("measurement.seed", "seed", "per document", "of the order of launches"),
    Figure("measurement.budget_s", "s", "over the run", "at most"),
    Figure("measurement.target_half_width", "share", "per interval", "at which measuring ends"),
)
_DEVICE: Final = (
    _VERSION,
    Figure("logical_cores", "count", "per device"),
    Figure("max_frequency_khz[]", "kHz", "per device", "of each core, its own highest"),
    Figure("scaling_max_khz[]", "kHz", "per device", "of each core, its governor's highest"),
    Figure("scaling_min_khz[]", "kHz", "per device", "of each core, its governor's lowest"),
    Figure("battery.level_percent", "%", "per device", "charge"),
    Figure("battery.temperature_c", "°C", "per device"),
    Figure("state.temperatures_c.*", "°C", "per device", "by sensor"),
    Figure("state.frequency_khz[]", "kHz", "per device", "of each core at that moment"),
    Figure("state.load_average[]", "1", "per device", "over 1, 5 and 15 minutes"),
    Figure("freed_bytes", "bytes", "per device", "by `clean`"),
)
DOCUMENTS: Final = {
    "analyze": _ANALYSIS,
    "compare": (*_COMPARISON, *_under("comparisons[]", _COMPARISON)),
    "report": (_VERSION, *_under("runs", _SIDE_BY_SIDE)),
    "export": (
        _VERSION,
        *_under("manifest", _MANIFEST),
        *_under("delegation", _DELEGATION),
        *_of_table("operator_kinds[]", export.OPERATOR_KINDS),
    ),
    "optimize": _OPTIMIZATION,
    "calibrate": _CALIBRATION,
    "calibrate --peaks": _PEAKS,
    "run --dry-run": (
        _VERSION,
        Figure("launches[].block", "count", "position"),
        Figure("least_timing_s", "s", "over the run", "that the timed launches take at least"),
    ),
    "numerics": _NUMERICS,
    "bench": _BENCH,
    "history list": (_VERSION, *_under("runs[]", _STORED_RUN)),
    "history show": (
        _VERSION,
        *_under("runs[]", _STORED_RUN),
        Figure("runs[].metrics[].median", "`unit`", "by row", "`metric` says of what"),
        Figure("runs[].metrics[].low", "`unit`", "by row", "lower end of its interval"),
        Figure("runs[].metrics[].high", "`unit`", "by row", "upper end"),
        Figure("runs[].metrics[].blocks", "count", "over the run", "launches"),
    ),
    "history check": _CHECKED,
    "history changes": _CHANGES,
    "history noise": (
        _VERSION,
        Figure("spreads[].of_run", "share", "by row", "standard deviation of a run's log value"),
        Figure("spreads[].runs", "count", "per device"),
        Figure("spreads[].series", "count", "per device", "with three runs or more"),
    ),
    "history add": (_VERSION, Figure("runs[].run_id", "count", "position", "in the history")),
    "history accept": (_VERSION, _RUN_IDS),
    "history pin": (
        _VERSION,
        _RUN_IDS,
        Figure("series", "count", "per document", "that lose the baseline"),
    ),
    "history export": (_VERSION, Figure("runs", "count", "per document", "that were written")),
    "history import": (
        _VERSION,
        Figure("added", "count", "per document", "runs"),
        Figure("known", "count", "per document", "runs that were there already"),
        Figure("baselines", "count", "per document", "that were pinned"),
    ),
    "bench --dry-run": (_VERSION, *_under("runs[]", _PLANNED_RUN)),
    "optimize --dry-run": (
        _VERSION,
        Figure("candidates[].operators", "count", "per program", "that the rewrite would change"),
    ),
    "export-llm --dry-run": (
        _VERSION,
        Figure("asked.config.size_bytes", "bytes", "per document", "of the file"),
        Figure("asked.files.*.size_bytes", "bytes", "per document", "of the file"),
        Figure("asked.max_context_length", "count", "per program", "tokens that its cache holds"),
        Figure("asked.max_seq_length", "count", "per program", "tokens that it reads at once"),
    ),
    "import": (
        _VERSION,
        Figure("sources[].size_bytes", "bytes", "per document", "of the file"),
        Figure("ns_per_tick", "ns", "per document", "that a tick of the ETDump's clock lasts"),
    ),
    "models": (
        _VERSION,
        Figure("models[].parameters", "count", "per program", "values"),
        Figure("models[].methods[].macs", "count", "per inference"),
    ),
    "dashboard --export": (
        _VERSION,
        Figure("pages", "count", "per document", "that were written"),
        Figure("runs", "count", "per document", "with a page of their own"),
        Figure("runs_in_history", "count", "per document"),
    ),
    "count-kernels": (_VERSION, Figure("kernels[].calls", "count", "over the run")),
    "emulator setup": (_VERSION, Figure("freed_bytes", "bytes", "per document", "by `--remove`")),
    "device": _DEVICE,
    **dict.fromkeys(
        ("validate", "config check", "device list", "emulator status", "doctor"), (_VERSION,)
    ),
}
"""The numbers of each command's JSON."""
SAME_AS: Final = {"profile": "analyze", "run": "analyze", "export-llm": "export"}
"""Commands whose JSON is that of another."""
