"""May a verdict be believed? Checks what surrounds the numbers, not the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.analysis.launch_state import fastest_core_khz
from etprof.base.text import join_names
from etprof.base.units import count_of, format_count, format_duration, format_ratio
from etprof.statistics.effect import is_balanced
from etprof.statistics.warmup import LEAST_SAMPLES, is_settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.output_check import OutputCheck
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.run.directory import BlockMetrics
    from etprof.run.manifest import LaunchRecord
    from etprof.run.runner_result import Conditions, RunnerResult

State = Literal["passed", "failed", "unknown"]

_FREQUENCY_SPREAD: Final = 0.05
SETTLED_SHARE: Final = 0.8
"""Of the launches, that must be steady from the start."""
_NS_PER_S: Final = 1e9
_LEAST_TICKS: Final = 100
"""So that a tick is at most 1 % of what is timed; the runner times shorter inferences together."""
_CALM_SWITCHES_PER_S: Final = 50
"""A competitor on the same core takes it a hundred times a second and more (Linux's slices are of a
few ms); a machine with nothing else to do, a few times."""
_SME_BUILD_FIELDS: Final = frozenset({"sme", "sme_default"})
_INSTRUMENTS: Final = frozenset({"trace", "symbol_check"})
"""Of the operator launch's runner; what is timed has none."""
_CALM_THERMAL: Final = frozenset({"none", "nominal", "0"})


_OUTPUTS: Final = "equal outputs"
WARM_UP: Final = "warm-up settled"
STEADY_FLAG: Final = "--warmup-steady"
"""What `etprof profile` takes to warm up until latencies settle."""
_UNDISTURBED: Final = "undisturbed"
_BIASED: Final = "disturbed alike"
"""Takes the place of `_UNDISTURBED` where other processes cost one side more than the other."""
_CALM_QUANTILE: Final = 10
"""Per cent of a side's inferences that ran undisturbed, on any machine that can still be measured on."""
_MOST_BIAS: Final = 1.1
"""Times by which the speedup of the medians may differ from that of the calm inferences. A time slice of
some ms is in most inferences of a program that takes as long, and in few of a short one's."""
_OBJECTIONS: Final = {
    "balanced order": "one side came first more often",
    "one direction": "the machine's speed changed during the run",
    WARM_UP: "latencies had not settled after the warm-up",
    _UNDISTURBED: "other processes used the CPU during the run",
    "fine clock": "an inference is too short for the clock",
    "steady frequency": "the CPU's frequency changed",
    "no throttling": "the device throttled",
    "same build": "the runners were built differently",
    _OUTPUTS: "the outputs differ",
}
"""What a condition that does not hold means, by its name."""
_CANCELLED: Final = frozenset({WARM_UP, _UNDISTURBED})
"""What meets both sides alike in the order that was drawn: a program against itself gets a false verdict
no more often where these are not met, so the verdict stands."""
FALSE_VERDICTS: Final = (2, 120)
"""False ones of all such verdicts, by `python benchmarks/conditions.py` on a 2-core x86-64 virtual machine
with none, one and two busy processes beside it."""


@dataclass(frozen=True)
class ValidityCheck:
    """One condition for believing a comparison."""

    name: str
    state: State
    detail: str
    cause: str = ""
    """What it means where it does not hold, if that is not the same whenever it fails."""

    @property
    def objection(self) -> str:
        """What it means where it does not hold, as the end of a sentence."""
        return self.cause or _OBJECTIONS[self.name]


@dataclass(frozen=True)
class Validity:
    """All conditions together: the badge beside a verdict."""

    checks: tuple[ValidityCheck, ...]

    @property
    def is_valid(self) -> bool:
        """Whether every condition is known to hold."""
        return all(check.state == "passed" for check in self.checks)

    @property
    def objection(self) -> str:
        """What speaks against the verdict, as the end of a sentence; empty where nothing is known to."""
        return join_names(check.objection for check in self._failed if check.name not in _CANCELLED)

    @property
    def remark(self) -> str:
        """What was not met and leaves the verdict as it is, as a sentence's end; empty for nothing."""
        return join_names(check.objection for check in self._failed if check.name in _CANCELLED)

    @property
    def _failed(self) -> list[ValidityCheck]:
        # That the sides compute different things is a verdict of its own.
        return [
            check for check in self.checks if check.state == "failed" and check.name != _OUTPUTS
        ]

    @property
    def badge(self) -> str:
        """The badge's text: what is violated, else what nobody knows."""
        failed = ", ".join(check.name for check in self.checks if check.state == "failed")
        if failed:
            return f"{'questionable, ' if self.objection else ''}not met: {failed}"
        return f"not known: {', '.join(self.unknown)}" if self.unknown else "valid"

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the conditions of which nothing is recorded."""
        return tuple(check.name for check in self.checks if check.state == "unknown")


def check_validity(
    baseline: Side, candidate: Side, outputs: Sequence[OutputCheck], steady: LedgerEntry | None
) -> Validity:
    """Checks order, warm-up, frequency, throttling, builds and outputs of two experiments.

    `steady` is the ledger's entry of the steady latency, with the verdict's speedup.
    """
    launches = _timing_launches(baseline, candidate)
    results = [side.experiment.loaded.result for side in (baseline, candidate)]
    return Validity(
        (
            _check_order(launches, baseline.experiment.name),
            _check_direction(steady),
            _check_warmup((baseline, candidate)),
            _check_interruptions((baseline, candidate)),
            _check_clock((baseline, candidate)),
            _check_frequency(launches),
            _check_throttling(launches),
            _check_builds(results),
            _check_outputs(outputs),
        )
    )


def _timing_launches(baseline: Side, candidate: Side) -> list[LaunchRecord]:
    """Timing launches of both sides, in order, when they are of one run."""
    if baseline.run.source != candidate.run.source or baseline.run.manifest is None:
        return []
    names = {baseline.experiment.name, candidate.experiment.name}
    return [
        launch
        for launch in baseline.run.manifest.launches
        if launch.purpose == "timing" and launch.experiment in names and launch.error is None
    ]


def _check_order(launches: Sequence[LaunchRecord], baseline: str) -> ValidityCheck:
    """Each side must come first about as often, as the order that was drawn has it."""
    name = "balanced order"
    first: dict[int, str] = {}
    for launch in launches:
        first.setdefault(launch.block or 0, launch.experiment)
    if not first:
        return ValidityCheck(
            name, "unknown", "the sides are of different runs: drift is not cancelled"
        )
    count = sum(experiment == baseline for experiment in first.values())
    detail = f"baseline first in {count} of {len(first)} blocks"
    return ValidityCheck(name, "passed" if is_balanced(count, len(first)) else "failed", detail)


def _check_direction(steady: LedgerEntry | None) -> ValidityCheck:
    """A verdict and the medians of both sides must not point in opposite directions."""
    name = "one direction"
    effect = steady.effect if steady is not None else None
    if steady is None or effect is None or not steady.baseline or not steady.candidate:
        return ValidityCheck(name, "unknown", "no latencies to compare")
    medians = steady.baseline / steady.candidate
    detail = f"pairs of launches {format_ratio(effect.speed_up)}, medians {format_ratio(medians)}"
    is_opposite = {"faster": medians < 1, "slower": medians > 1}.get(effect.verdict, False)
    return ValidityCheck(
        name,
        "failed" if is_opposite else "passed",
        detail,
        f"{_OBJECTIONS[name]}: {detail}" if is_opposite else "",
    )


def _check_warmup(sides: Sequence[Side]) -> ValidityCheck:
    name = WARM_UP
    blocks = _blocks(sides)
    if not blocks:
        return ValidityCheck(name, "unknown", "no raw latencies")
    settled, judged = count_settled(blocks)
    if judged < len(blocks):
        few = f"{len(blocks) - judged} of {len(blocks)} blocks have under {LEAST_SAMPLES} samples"
        return ValidityCheck(name, "unknown", few)
    state: State = "passed" if settled >= SETTLED_SHARE * len(blocks) else "failed"
    return ValidityCheck(
        name, state, f"{settled} of {len(blocks)} blocks were steady from the start"
    )


def count_settled(blocks: Iterable[BlockMetrics]) -> tuple[int, int]:
    """Returns how many launches were steady from the start, and of how many that can be told."""
    judged = [
        settled and block.is_steady is not False
        for block in blocks
        if (settled := is_settled(block.latency_ns)) is not None
    ]
    return sum(judged), len(judged)


def _check_interruptions(sides: Sequence[Side]) -> ValidityCheck:
    """Half of the launches at least must have had the CPU to themselves."""
    name = _UNDISTURBED
    recorded = [
        (conditions, block)
        for block in _blocks(sides)
        if (conditions := block.conditions) is not None
    ]
    if not recorded:
        return ValidityCheck(name, "unknown", "the runner does not report preemptions")
    rate = median(
        conditions.involuntary_switches * _NS_PER_S / max(1, block.timed_ns)
        for conditions, block in recorded
    )
    faults = sum(conditions.major_faults for conditions, _ in recorded)
    moved = sum(conditions.first_core != conditions.last_core for conditions, _ in recorded)
    detail = (
        f"preempted {round(rate)} times a second; {count_of(faults, 'page')} from storage; "
        f"other core at the end in {moved} of {len(recorded)} blocks"
        f"{_of_an_inference(recorded, 'minor_faults', 'new pages')}"
        f"{_of_an_inference(recorded, 'voluntary_switches', 'waits')}"
    )
    is_shared = rate > _CALM_SWITCHES_PER_S
    if is_shared and (bias := _describe_bias(sides)):
        return ValidityCheck(_BIASED, "failed", detail, bias)
    cause = "" if is_shared else "pages came from storage during the run"
    return ValidityCheck(name, "failed" if is_shared or faults else "passed", detail, cause)


def _describe_bias(sides: Sequence[Side]) -> str:
    """Says that other processes slowed one side more than the other; empty where they did not."""
    metrics = [side.experiment.metrics for side in sides if side.experiment.metrics is not None]
    if len(metrics) != len(sides):
        return ""
    (calm_ns, middle_ns), (candidate_calm_ns, candidate_middle_ns) = (
        np.percentile([ns for block in m.blocks for ns in block.latency_ns], [_CALM_QUANTILE, 50])
        for m in metrics
    )
    calm, middle = calm_ns / candidate_calm_ns, middle_ns / candidate_middle_ns
    if max(calm / middle, middle / calm) <= _MOST_BIAS:
        return ""
    return (
        f"other processes used the CPU and slowed one side more: the speedup of undisturbed inferences "
        f"(10th percentile) is {format_ratio(calm)}, that of the medians {format_ratio(middle)}"
    )


def _of_an_inference(
    recorded: Sequence[tuple[Conditions, BlockMetrics]], name: str, noun: str
) -> str:
    """Says how often an inference does what costs it time by its own doing; empty if not known."""
    rates = [
        count / (len(block.latency_ns) * block.inferences_per_sample)
        for conditions, block in recorded
        if (count := getattr(conditions, name)) is not None
    ]
    return f"; {format_count(median(rates))} {noun} per inference" if rates else ""


def _check_clock(sides: Sequence[Side]) -> ValidityCheck:
    """What is timed at once must be long beside what the clock can tell apart."""
    name = "fine clock"
    clocked = [(clock, block) for block in _blocks(sides) if (clock := block.clock) is not None]
    if not clocked:
        return ValidityCheck(
            name, "unknown", "the runner does not report the resolution of its clock"
        )
    ticks = min(
        median(block.latency_ns) * block.inferences_per_sample / clock.tick_ns
        for clock, block in clocked
    )
    reading = format_duration(max(clock.reading_ns for clock, _ in clocked))
    detail = f"a sample is {format_count(ticks)} ticks or more; a reading takes {reading}"
    return ValidityCheck(name, "passed" if ticks >= _LEAST_TICKS else "failed", detail)


def _blocks(sides: Sequence[Side]) -> list[BlockMetrics]:
    return [
        b for s in sides if s.experiment.metrics is not None for b in s.experiment.metrics.blocks
    ]


def _states(launches: Sequence[LaunchRecord]) -> list[dict[str, object]]:
    """The machine's state before and after each launch, where known."""
    return [s for launch in launches for s in (launch.state_before, launch.state_after) if s]


def _check_frequency(launches: Sequence[LaunchRecord]) -> ValidityCheck:
    """The fastest core's frequency must be the same around all launches."""
    name = "steady frequency"
    fastest = [khz for state in _states(launches) if (khz := fastest_core_khz(state))]
    if not fastest:
        return ValidityCheck(name, "unknown", "this target shows no core frequencies")
    spread = (max(fastest) - min(fastest)) / max(fastest)
    governors = {
        str(governor) for state in _states(launches) if (governor := state.get("governor"))
    }
    by = f", governor {join_names(sorted(governors))}" if governors else ""
    detail = f"{min(fastest) / 1e6:.2f} to {max(fastest) / 1e6:.2f} GHz{by}"
    return ValidityCheck(name, "passed" if spread <= _FREQUENCY_SPREAD else "failed", detail)


def _check_throttling(launches: Sequence[LaunchRecord]) -> ValidityCheck:
    name = "no throttling"
    states = _states(launches)
    seen = {str(status).lower() for state in states if (status := state.get("thermal_status"))}
    if not seen:
        return ValidityCheck(name, "unknown", "this target shows no thermal status")
    hot = sorted(seen - _CALM_THERMAL)
    return ValidityCheck(name, "failed" if hot else "passed", ", ".join(hot or sorted(seen)))


def _check_builds(results: Sequence[RunnerResult | None]) -> ValidityCheck:
    """Both sides must be built alike, SME switches apart."""
    name = "same build"
    builds = [result.runner.build for result in results if result is not None]
    if len(builds) < len(results):
        return ValidityCheck(name, "unknown", "a runner's result is missing")
    fields = {key for build in builds for key in build} - _SME_BUILD_FIELDS - _INSTRUMENTS
    different = sorted(key for key in fields if len({str(b.get(key)) for b in builds}) > 1)
    detail = f"runners differ in {', '.join(different)}" if different else "but for SME switches"
    return ValidityCheck(name, "failed" if different else "passed", detail)


def _check_outputs(outputs: Sequence[OutputCheck]) -> ValidityCheck:
    """A fast wrong answer is no answer."""
    name = _OUTPUTS
    if not outputs:
        return ValidityCheck(name, "unknown", "outputs were not kept whole, or the programs differ")
    bad = [check for check in outputs if not check.is_within]
    return ValidityCheck(name, "failed" if bad else "passed", "; ".join(map(str, bad or outputs)))
