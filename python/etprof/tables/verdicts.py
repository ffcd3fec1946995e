"""The sentences, badges and figures at the head of every report."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from etprof.analysis.findings.rules import RULES
from etprof.analysis.validity import FALSE_VERDICTS, STEADY_FLAG, WARM_UP
from etprof.base.records import SME_LABELS, SME_ON
from etprof.base.text import clean, clean_data, join_names
from etprof.base.units import (
    MISSING,
    be,
    count_of,
    format_count,
    format_duration,
    format_interval,
    format_ratio,
    format_ratio_ends,
    format_share,
    format_size,
    format_value,
)
from etprof.tables.machine import FACTS
from etprof.targets.registry import TARGETS, find_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.statistics.effect import Effect, Verdict
    from etprof.statistics.summary import BlockedMedian
    from etprof.tables.table import Table

_TILE_LABELS = ("Load method (with weight packing)", "First inference", "Peak memory")
WRONG = "wrong outputs"
NO_COMPARISON = "no comparison"
QUESTIONABLE = "questionable"
"""The badge of a verdict that a condition of the measurement speaks against."""
_MODES = {"sme2": "With SME2", "sme1": "With SME (not SME2)", "off": "With SME off"}
_ROUTES = {
    "proven": "{} ran on {} (calls counted)",
    "named": "{} named for {} by type, not counted",
    "excluded": "{} not on {}",
    "unknown": "{} not known",
}
_MEANINGS: dict[Verdict, str] = {
    "faster": ": more than noise explains.",
    "slower": ": more than noise explains.",
    "no difference": ": that is no difference.",
    "inconclusive": ", but the measurement cannot tell that from noise: measure more blocks.",
}


def describe_effect(effect: Effect) -> str:
    """Says what the latency did, always with its verdict and never as a bare ratio."""
    within = f" within {format_share(effect.margin)}" if effect.verdict == "no difference" else ""
    rests_on = f": {effect.rests_on}" if effect.rests_on else ""
    return f"{effect.verdict}{within}{rests_on}, speedup {format_speed_up(effect)}"


def format_speed_up(effect: Effect) -> str:
    """Formats a speedup with its interval: `1.83× (95 % interval in this run 1.79× … 1.88×)`."""
    text = format_ratio(effect.speed_up, effect.half_width)
    if effect.interval is None:
        return f"{text} (no interval from {effect.pairs} pairs)" if effect.pairs else text
    low, high = format_ratio_ends(effect.speed_up, effect.interval.low, effect.interval.high)
    if effect.p_value is None:
        return f"{text} ({low} … {high} between launches)"
    # Another run has other conditions: nothing here says how much those change.
    of_what = "" if effect.rests_on else " in this run"
    return f"{text} ({interval_title(effect)}{of_what} {low} … {high})"


def interval_title(effect: Effect) -> str:
    """Names the interval of an effect: of separate runs it is wider, of one a side of launches."""
    if not effect.rests_on:
        return "95 % interval"
    return "between launches" if effect.p_value is None else "99 % interval"


def describe_setup(*sides: tuple[RunAnalysis, ExperimentAnalysis], names: str = "") -> str:
    """Says what was measured, such as `toy_cnn, fp16, 1 thread`, or of two sides `fp16 → int8`.

    `names` stands for the models' own.
    """
    models = [_model_of(*side) for side in sides]
    precisions = [experiment.program.precision for _, experiment in sides]
    threads = [experiment.threads for _, experiment in sides]
    facts = [names or " → ".join(dict.fromkeys(models)),
             " → ".join(filter(None, dict.fromkeys(precisions)))]  # fmt: skip
    if None not in threads:
        counts = list(dict.fromkeys(map(str, threads)))
        unit = "thread" if counts == ["1"] else "threads"
        facts.append(f"{' → '.join(counts)} {unit}")
    return ", ".join(filter(None, facts))


def _model_of(run: RunAnalysis, experiment: ExperimentAnalysis) -> str:
    """The model's name; the run's where the program does not say."""
    model = experiment.program.model
    return model.name if model else run.name


def _describe_pair(comparison: Comparison) -> str:
    """Says what two sides are, and by what they differ."""
    sides = [(side.run, side.experiment) for side in (comparison.baseline, comparison.candidate)]
    pair, models = comparison.short_name, [_model_of(*side) for side in sides]
    if models[0] != models[1] and all(map(str.__contains__, comparison.short_names, models)):
        return describe_setup(*sides, names=pair)
    setup = ", ".join(filter(None, (describe_setup(*sides), comparison.common_mode)))
    return setup if pair in setup.split(", ") else f"{setup}, {pair}"


def describe_comparison(comparison: Comparison) -> str:
    """Returns the comparison's headline."""
    pair = _describe_pair(comparison)
    if comparison.times is None:
        return f"{pair}: emulated, so only structure and kernels are compared"
    if comparison.latency is None:
        return f"{pair}: not timed without tracer, so there is no verdict"
    wrong = "" if comparison.outputs_agree else "different results; "
    if comparison.wrong:
        wrong = "WRONG OUTPUTS, so no time counts; "
    objection = objection_to(comparison)
    if objection:
        speed = f"speedup {format_speed_up(comparison.latency)}"
        return f"{pair}: {wrong}questionable, {speed}: {objection}"
    return f"{pair}: {wrong}{describe_effect(comparison.latency)}"


def objection_to(comparison: Comparison) -> str:
    """Says why the verdict on a comparison's times does not hold; empty where nothing is known."""
    return comparison.times.validity.objection if comparison.times else ""


def describe_plainly(comparison: Comparison) -> str:
    """Says the same to someone who has never profiled."""
    effect = comparison.latency
    before, after = comparison.baseline.experiment, comparison.candidate.experiment
    if effect is None or before.latency is None or after.latency is None:
        return ""
    steady = comparison.steady
    if steady is None:
        return ""
    now, then = (format_duration(value) for value in (steady.candidate, steady.baseline))
    changed = _what_changed(comparison)
    meaning = _MEANINGS[effect.verdict]
    if effect.p_value is None and comparison.has_two_models:
        meaning = ", of two different models, with one run per side."
    elif effect.p_value is None:
        meaning = ", but with one run per side that may be ordinary variation between runs."
    if objection_to(comparison):
        meaning = ". Measure again when the device is quiet."
    if comparison.wrong:
        meaning = ", but the outputs are wrong, so their latency is meaningless."
    medians = f"{now} on both sides" if now == then else f"{now} instead of {then}"
    return f"{changed} the median latency is {medians}{meaning}{_bridge(comparison)}"


def _bridge(comparison: Comparison) -> str:
    """Says why the speedup is not the ratio of the two medians, where anybody would notice."""
    effect, steady = comparison.latency, comparison.steady
    if effect is None or effect.interval is None or effect.rests_on:
        return ""
    if steady is None or not steady.baseline or not steady.candidate:
        return ""
    if effect.interval.low <= steady.baseline / steady.candidate <= effect.interval.high:
        return ""
    return " The speedup is the median ratio of neighbouring launches, not the ratio of these two."


def _what_changed(comparison: Comparison) -> str:
    """Names the one thing that differs, where it is one."""
    before, after = comparison.baseline.experiment, comparison.candidate.experiment
    if before.sme != after.sme and before.threads == after.threads and after.sme in _MODES:
        return _MODES[after.sme]
    if before.sme == after.sme and before.threads != after.threads and after.threads:
        return f"With {count_of(after.threads, 'thread')}"
    return f"In {comparison.short_names[1]}"


def badge_of(comparison: Comparison) -> str:
    """Returns one word for the badge; wrong results outrank any speed."""
    if comparison.wrong:
        return WRONG
    if not comparison.outputs_agree:
        return "different results"
    if comparison.times is None:
        return "not representative"
    if comparison.latency and objection_to(comparison):
        return QUESTIONABLE
    return comparison.latency.verdict if comparison.latency else "not timed"


@dataclass(frozen=True)
class Headline:
    """What a report says first."""

    figure: str
    badge: str
    text: str
    plain: str = ""
    """The same for someone who has never profiled."""
    caution: str = ""
    detail: str = ""

    @property
    def detail_sentence(self) -> str:
        """The detail as a sentence of its own."""
        return (
            f"{self.detail[:1].upper()}{self.detail[1:].removesuffix('.')}." if self.detail else ""
        )

    @property
    def sentence(self) -> str:
        """The first line of every answer: what was measured, and what came out."""
        return f"{self.text}. {self.plain}" if self.plain else f"{self.text}."


class VerdictTile(NamedTuple):
    """One figure with what stands beside it."""

    label: str
    value: str
    caption: str = ""


def describe_subject(assessment: Assessment) -> str:
    """Precision, platform, CPU and date, as far as they are known."""
    facts = assessment.run.manifest
    if facts is None:
        return clean(str(assessment.run.source))
    model, cpu = facts.model, facts.cpu
    details = [
        model.precision,
        model.backend,
        facts.platform,
        (cpu.model_name or cpu.architecture) if cpu else None,
        (facts.created_at or "")[:10],
    ]
    return " · ".join(detail for detail in details if detail)


def head_of(assessment: Assessment) -> Headline:
    """The verdict; without a comparison the latency alone."""
    comparison = assessment.primary_comparison
    if not assessment.is_split:
        counted = ", ".join(assessment.run.counted)
        plain = f"Kernels were counted in {counted}." if counted else "Outputs were computed."
        return Headline(MISSING, "no per-operator breakdown", assessment.run.name, plain)
    primary = assessment.primary.experiment
    if comparison is not None:
        return _comparison_head(assessment, comparison)
    latency = primary.latency
    figure = format_duration(latency.steady.median) if latency else MISSING
    return Headline(
        figure=figure,
        badge=_single_experiment_badge(assessment),
        text=_describe_single(assessment)
        + (f": median latency {figure}" if figure != MISSING else ""),
        plain="No baseline: one configuration was measured."
        if len(assessment.run.experiments) == 1
        else f"None of the {len(assessment.run.experiments)} experiments was compared.",
        detail=_describe_interval(latency.steady) if latency else "",
    )


def _describe_single(assessment: Assessment) -> str:
    """Says what an experiment alone is; its name where there are others."""
    primary = assessment.primary.experiment
    setup = describe_setup((assessment.run, primary))
    if len(assessment.run.experiments) > 1:
        return f"{setup}, {primary.name}"
    return f"{setup}, {SME_LABELS[primary.sme]}" if primary.sme in SME_ON else setup


def _test_of(effect: Effect) -> str:
    """Says what a verdict rests on."""
    if effect.p_value is None:
        return effect.rests_on
    p_value = format_value("p", effect.p_value)
    if effect.rests_on:
        return f"{effect.rests_on}, Student's p = {p_value}"
    return f"{effect.pairs} pairs of process launches, signed-rank p = {p_value}"


def _describe_interval(steady: BlockedMedian) -> str:
    """Says what the interval claims, and why it claims no more."""
    interval = steady.interval
    if interval is None:
        return f"the median has no confidence interval: {steady.doubt}"
    between = format_interval(interval.low, interval.high, steady.median)
    if steady.doubt:
        return f"interval of the median {between}, with less than 95 % confidence: {steady.doubt}"
    if steady.assumes:
        return f"95 % interval of the median in this run {between}, {steady.assumes}"
    return f"95 % interval of the median in this run {between}"


def _single_experiment_badge(assessment: Assessment) -> str:
    if assessment.run.wrong:
        return WRONG
    return NO_COMPARISON if assessment.primary.experiment.split.times else "not representative"


def _comparison_head(assessment: Assessment, comparison: Comparison) -> Headline:
    """Speedup with verdict; for emulated runs what is known of the operators' SME routes."""
    effect = comparison.latency
    figure = MISSING if effect is None else format_ratio(effect.speed_up, effect.half_width)
    plain = describe_plainly(comparison)
    detail = [str(check) for check in comparison.outputs]
    detail += [f"generated: {comparison.tokens}"] if comparison.tokens else []
    if effect is not None:
        detail.insert(0, f"{_test_of(effect)}; speedup is baseline ÷ candidate")
    if comparison.times is None:
        routes = describe_routes(assessment.primary)
        figure, plain = routes.figure, routes.text
    return Headline(
        figure=figure,
        badge=badge_of(comparison),
        text=describe_comparison(comparison),
        plain=plain,
        caution=caution_of(comparison),
        detail=f"{'; '.join(detail)}." if detail else "",
    )


def caution_of(comparison: Comparison) -> str:
    """Says what was not met beside the verdict, else what nobody knows; empty for neither."""
    times = comparison.times
    if times is None or times.validity.objection or times.validity.is_valid:
        return ""
    remark = times.validity.remark
    if not remark:
        return f"Conditions not checked: {join_names(times.validity.unknown)}"
    false, tested = FALSE_VERDICTS
    failed = {check.name for check in times.validity.checks if check.state == "failed"}
    is_unsettled = WARM_UP in failed
    where = "with such warm-ups" if is_unsettled and len(failed) == 1 else "under such load"
    caution = (
        f"{remark[:1].upper()}{remark[1:]}. In etprof's own tests {where}, {false} of {tested} "
        "verdicts were false."
    )
    plans = (side.planned for side in (comparison.baseline, comparison.candidate))
    if is_unsettled and not any(plan is not None and plan.warmup_steady for plan in plans):
        caution += f" {STEADY_FLAG} waits until latencies settle."
    return caution


def tiles_of(assessment: Assessment) -> list[VerdictTile]:
    """A few figures of the primary experiment, beside its baseline's."""
    if not assessment.is_split:
        return []
    split, comparison = assessment.primary.experiment.split.times, assessment.primary_comparison
    if split is None:
        return _emulated_tiles(assessment)
    if comparison is not None and comparison.times and comparison.times.ledger:
        ledger = {row.label: row for row in comparison.times.ledger}
        labels = ("Steady inference", *_TILE_LABELS)
        return [_ledger_tile(ledger[label]) for label in labels]
    latency = assessment.primary.experiment.latency
    if latency is None:
        return [
            VerdictTile("Median inference, with tracer", format_duration(split.execute_median_ns))
        ]
    return [
        VerdictTile("Median inference", format_duration(latency.steady.median),
             count_of(latency.samples.count, "sample")),
        VerdictTile("99th percentile", format_duration(latency.samples.p99),
             f"minimum {format_duration(latency.samples.minimum)}"),
        VerdictTile("First inference", _duration(latency.first_inference),
             f"load {_duration(latency.load)}"),
        VerdictTile("Peak memory", format_size(latency.peak_rss_bytes),
             f"planned {format_size(latency.planned_buffers_bytes)}"),
    ]  # fmt: skip


def _duration(summary: BlockedMedian | None) -> str:
    return MISSING if summary is None else format_duration(summary.median)


def _ledger_tile(row: LedgerEntry) -> VerdictTile:
    value = format_value(row.unit, row.candidate)
    return VerdictTile(row.label, value, f"baseline {format_value(row.unit, row.baseline)}")


def _emulated_tiles(assessment: Assessment) -> list[VerdictTile]:
    """Counts instead of times."""
    details = assessment.primary.details
    calls = sum(kernel.calls for detail in details for kernel in detail.kernels)
    is_counted = assessment.primary.has_kernel_trace
    counted = "counted calls" if is_counted else "no kernel trace"
    delegated = f"{sum(d.row.is_delegated for d in details)} delegated"
    routes = describe_routes(assessment.primary)
    return [
        VerdictTile(f"Convolutions and products on {routes.unit}", routes.figure, counted),
        VerdictTile("Operators", f"{len(details)}", delegated),
        VerdictTile(
            "KleidiAI calls, packing included", format_count(calls) if is_counted else MISSING
        ),
    ]


class RouteSummary(NamedTuple):
    """What is known of SME under all convolutions and matrix products of an experiment."""

    figure: str
    """Such as `36 of 53`, if all were counted; else `30 proven, 6 named of 53`."""
    text: str
    unit: str
    """SME2, or SME where that is all that can be said."""


def route_counts(insight: ExperimentInsight) -> Counter[str]:
    """Returns how many convolutions and matrix products took each SME route."""
    compute = (d.evidence for d in insight.details if d.evidence.could_use_sme2)
    return Counter(evidence.route.answer for evidence in compute)


def describe_routes(insight: ExperimentInsight) -> RouteSummary:
    """Counts the SME routes, proven, named and unknown apart; what nobody counted is no zero."""
    compute = [d.evidence for d in insight.details if d.evidence.could_use_sme2]
    unit, counts = insight.sme_unit, route_counts(insight)
    if not compute:
        return RouteSummary(MISSING, "There is no convolution or matrix product.", unit)
    if all(evidence.is_counted for evidence in compute):
        figure = f"{counts['proven']} of {len(compute)}"
        text = f"{figure} convolutions and matrix products ran on {unit}."
        return RouteSummary(figure, text, unit)
    named_counts = [f"{counts[key]} {key}" for key in ("proven", "named", "unknown") if counts[key]]
    figure = f"{', '.join(named_counts)} of {len(compute)}" if named_counts else MISSING
    clauses = [says.format(counts[key], unit) for key, says in _ROUTES.items() if counts[key]]
    text = f"Of {len(compute)} convolutions and matrix products: {'; '.join(clauses)}."
    return RouteSummary(figure, text, unit)


def platform_warning(assessment: Assessment) -> str | None:
    """Returns the banner of platforms that are not representative."""
    manifest = assessment.run.manifest
    kind = find_kind(manifest.platform) if manifest else None
    if not assessment.run.is_timed and (kind is None or kind.policy.proves_times):
        kind = next(target_kind for target_kind in TARGETS if not target_kind.policy.proves_times)
    return kind.warning if kind else None


def alarm_of(run: RunAnalysis, *, most_reasons: int | None = None) -> str | None:
    """Returns the banner of a run whose outputs are wrong: it stands above every figure.

    Where there are more reasons than `most_reasons`, it counts the others.
    """
    locations = defaultdict[str, list[str]](list)
    for verdict in run.wrong:
        locations[verdict.text.removeprefix(f"{verdict.where}: ")].append(verdict.where)
    # What the export found, each experiment finds again.
    texts = [f"{join_names(names)}: {reason}" for reason, names in locations.items()]
    reasons = "; ".join(texts[:most_reasons])
    if not reasons:
        return None
    hidden = len(texts) - len(texts[:most_reasons])
    reasons += f"; and {count_of(hidden, 'more reason')}" if hidden else ""
    wrong = {verdict.where for verdict in run.wrong}
    if wrong < {experiment.name for experiment in run.experiments}:
        # Such as one vector length of three: what is wrong counts for nothing, the rest stands.
        return f"{', '.join(sorted(wrong))} is excluded; the other results are valid. {reasons}."
    return f"Do not use these results: {reasons}."


def describe_doubt(assessment: Assessment) -> str:
    """Says that the primary breakdown is not to be relied on, why, and what is withheld for it.

    Empty where it is.
    """
    agreement = assessment.primary.experiment.agreement if assessment.is_split else None
    if agreement is None or not agreement.is_in_doubt:
        return ""
    rules = [f"{name} ({RULES[name].looks_for})" for name in assessment.primary_findings.withheld]
    return f"{join_names(rules) or 'Gains'} {be(len(rules))} withheld: {agreement.cause}. {agreement.way_out}"


def describe_recorded(experiments: Iterable[ExperimentAnalysis]) -> str:
    """Warns of the times of a breakdown that is not to be relied on; empty where all are."""
    factors = [
        f"{format_ratio(1 + experiment.agreement.distance)} the timed latency of {experiment.name}"
        for experiment in experiments
        if experiment.agreement and experiment.agreement.is_in_doubt
    ]
    if not factors:
        return ""
    return f"Warning: these times and shares are of recorded inferences, on average {join_names(factors)}."


def notes_of(assessment: Assessment) -> list[str]:
    """What is missing, and what stands against taking the comparison at face value."""
    comparison = assessment.primary_comparison
    return list(dict.fromkeys([*assessment.notes, *(comparison.notes if comparison else ())]))


def silent_rules(assessment: Assessment) -> list[str]:
    """Names the checks that found nothing."""
    primary = assessment.primary_findings
    fired = {finding.rule for finding in primary.findings}
    return [f"{RULES[name].looks_for} ({name})" for name in primary.checked if name not in fired]


def reference_name(reference: RunAnalysis | None) -> str:
    """Names the reference model and its run."""
    return f"{reference.name}, {clean(str(reference.source))}" if reference else ""


def provenance_table(assessment: Assessment) -> Table:
    """Every field of the manifest as one row, nested names joined by dots."""
    manifest = assessment.run.manifest
    if manifest is None:
        return FACTS.of([("source", clean(str(assessment.run.source)))])
    lines: list[tuple[str, str | None]] = []
    for name, value in manifest.model_dump(mode="json").items():
        if name == "launches":
            lines.append((name, f"{len(value)} process launches, listed in manifest.json"))
        else:
            lines += flatten(name, clean_data(value))
    return FACTS.of(lines)


def flatten(name: str, value: object) -> Iterator[tuple[str, str | None]]:
    """Yields every fact in a value under its name, nested names joined by dots."""
    if isinstance(value, dict) and value:
        for key, nested in value.items():
            yield from flatten(f"{name}.{key}", nested)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, nested in enumerate(value):
            yield from flatten(f"{name}[{index}]", nested)
    else:
        yield name, value if isinstance(value, str | None) else json.dumps(value)
