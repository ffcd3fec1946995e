"""The gate against simulated runs of which the truth is known, and its formulas against SciPy."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from etprof.base.units import format_range, format_value
from etprof.history.check import Checked, CheckRequest, CheckResult
from etprof.history.gate import Judgement, judge, judge_against
from etprof.history.noise import NoiseFloor, pool_groups
from etprof.history.schema import Metric, Run
from etprof.history.tables import render_check
from etprof.statistics.two_samples import shift_interval, t_quantile

STEADY = (99.0, 99.5, 100.0, 100.5, 101.0, 100.2, 99.8, 100.1)
TRIALS = 400


def value(samples: Sequence[float], *, higher_is_better: bool = False) -> Metric:
    return Metric(
        name="latency_ns",
        unit="ns",
        higher_is_better=higher_is_better,
        value=float(np.median(samples)),
        low=None,
        high=None,
        samples=tuple(samples),
    )


def times(factor: float) -> list[float]:
    return [sample * factor for sample in STEADY]


@dataclass
class Machine:
    """Runs differ by `run_spread`, the blocks of a run by `block_spread`, both relative."""

    run_spread: float
    block_spread: float
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def run(self, factor: float = 1.0, blocks: int = 10) -> Metric:
        level = 1e6 * factor * math.exp(self.random.normal() * self.run_spread)
        noise = np.exp(self.random.normal(size=blocks) * self.block_spread)
        return value((level * noise).tolist())

    def noise(self) -> NoiseFloor | None:
        """What this machine's A/A data says: three series, each measured three times."""
        groups = [[math.log(self.run().value) for _ in range(3)] for _ in range(3)]
        return pool_groups("device", "latency_ns", groups)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.3, "regression"), (0.7, "improvement"), (1.0, "unchanged"), (1.06, "inconclusive")],
)
def test_verdicts_where_lower_is_better(factor: float, verdict: str) -> None:
    judgement = judge(value(STEADY), value(times(factor)))
    assert judgement.verdict == verdict
    assert judgement.change == pytest.approx(factor - 1)
    assert judgement.low is not None
    assert judgement.high is not None
    assert judgement.low < factor - 1 < judgement.high


def test_values_that_cannot_be_of_one_thing_are_not_judged() -> None:
    """S5: a damaged store ended in an OverflowError."""
    judgement = judge(value([1e-300] * 8), value(times(1e300)))
    assert (judgement.verdict, judgement.change) == ("inconclusive", None)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.3, "improvement"), (0.7, "regression"), (1.0, "unchanged")]
)
def test_verdicts_where_higher_is_better(factor: float, verdict: str) -> None:
    before, after = (value(s, higher_is_better=True) for s in (STEADY, times(factor)))
    assert judge(before, after).verdict == verdict


def test_the_threshold_decides() -> None:
    sides = value(STEADY), value(times(1.2))
    assert judge(*sides, threshold=0.05).verdict == "regression"
    assert judge(*sides, threshold=0.5).verdict == "unchanged"
    assert judge(*sides, threshold=0.19).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("sides", "reason"),
    [
        ((value(STEADY), value([0.0] * 8)), "a value is zero"),
        (
            (value([100.0]), value([200.0])),
            "too few blocks, and no A/A data of this device",
        ),
    ],
)
def test_what_cannot_be_judged_says_why(sides: tuple[Metric, Metric], reason: str) -> None:
    judgement = judge(*sides)
    assert (judgement.verdict, judgement.reason) == ("inconclusive", reason)


def test_known_noise_widens_the_interval_and_judges_single_values() -> None:
    loud = NoiseFloor("device", "latency_ns", of_run=0.2, freedom=20, runs=25, groups=5)
    quiet = NoiseFloor("device", "latency_ns", of_run=0.002, freedom=20, runs=25, groups=5)
    slow = value(times(1.3))
    assert judge(value(STEADY), slow, noise=loud).verdict == "inconclusive"
    assert judge(value(STEADY), slow, noise=quiet).verdict == "regression"
    assert judge(value([100.0]), value([130.0]), noise=quiet).verdict == "regression"


def test_noise_of_two_runs_is_no_knowledge_but_a_warning() -> None:
    loud = NoiseFloor("device", "latency_ns", of_run=0.2, freedom=1, runs=2, groups=1)
    assert judge(value(STEADY), value(times(1.3)), noise=loud).verdict == "inconclusive"


@pytest.mark.parametrize("spread", [(0.005, 0.005), (0.01, 0.01), (0.02, 0.01), (0.05, 0.05)])
@pytest.mark.parametrize("baselines", [1, 5])
def test_false_alarms_are_rare_without_any_knowledge_of_the_machine(
    spread: tuple[float, float], baselines: int
) -> None:
    machine = Machine(*spread)
    alarms = sum(
        judge_against([machine.run() for _ in range(baselines)], machine.run()).verdict
        in ("regression", "improvement")
        for _ in range(TRIALS)
    )
    assert alarms / TRIALS <= 0.05


@pytest.mark.parametrize("spread", [(0.02, 0.002), (0.05, 0.005), (0.1, 0.01)])
def test_false_alarms_are_rare_where_runs_differ_much_more_than_blocks(
    spread: tuple[float, float],
) -> None:
    """The trap that made phone benchmarks useless: every run looks steady by itself."""
    machine = Machine(*spread)
    alarms = sum(
        judge(machine.run(), machine.run(), noise=machine.noise()).verdict
        in ("regression", "improvement")
        for _ in range(TRIALS)
    )
    assert alarms / TRIALS <= 0.05


def test_a_slower_run_is_found() -> None:
    machine = Machine(0.01, 0.01)
    found = [judge(machine.run(), machine.run(1.2)).verdict for _ in range(TRIALS)]
    assert found.count("regression") / TRIALS >= 0.98


@pytest.mark.parametrize("sizes", [(4, 4), (6, 10), (10, 10), (20, 7)])
def test_the_interval_is_that_of_the_rank_sum_test(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    baseline, candidate = random.normal(size=sizes[0]), random.normal(1.0, size=sizes[1])
    interval = shift_interval(baseline, candidate)
    assert interval is not None
    for shift, inside in ((interval.low, True), (interval.high, True)):
        for step in (-1e-9, 1e-9):
            moved = candidate - shift - step
            p = stats.mannwhitneyu(moved, baseline, method="exact").pvalue
            is_inside = interval.low < shift + step < interval.high
            assert (p > 0.05) == is_inside, (inside, p)


@pytest.mark.parametrize("sizes", [(3, 3), (1, 10), (0, 5)])
def test_too_few_values_have_no_interval(sizes: tuple[int, int]) -> None:
    assert shift_interval(np.zeros(sizes[0]), np.zeros(sizes[1])) is None


def test_large_samples_have_nearly_the_exact_interval() -> None:
    random = np.random.default_rng(2)
    baseline, candidate = random.normal(size=40), random.normal(size=30)
    interval = shift_interval(baseline, candidate)
    assert interval is not None
    for shift in (interval.low, interval.high):
        p = stats.mannwhitneyu(candidate - shift, baseline, method="exact").pvalue
        assert p == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("freedom", [4, 5, 7, 10, 30, 200])
def test_quantile_of_student(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_noise_is_pooled_within_groups() -> None:
    floor = pool_groups("d", "m", [[1.0, 3.0], [10.0, 10.0, 13.0], [99.0]])
    assert floor == NoiseFloor("d", "m", pytest.approx(math.sqrt(8 / 3)), 3, 5, 2)  # type: ignore[arg-type]
    assert pool_groups("d", "m", [[1.0], [2.0]]) is None


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_check_formats_numbers_as_everything_does(form: str) -> None:
    """T12: rates and changes had a formatter of their own here."""
    run = Run(id=1, model="decoder", device="Phone", sme_mode="off")
    judgement = Judgement("unchanged", 0.0, -0.0123, 0.0001, 0.05, "within")
    entry = Checked(
        "unchanged", run, (run,), "within", "decode_tokens_per_second", "1/s",
        1234.0, 1234.4, judgement,
    )  # fmt: skip
    text = render_check(CheckResult(CheckRequest("window:1"), (entry,), ()), form)
    cells = [cell.strip() for line in text.splitlines() for cell in re.split("[│|]", line)]
    for unit, value in (("1/s", 1234.0), ("change", 0.0)):
        assert format_value(unit, value) in cells
    assert format_range("change", -0.0123, 0.0001) in cells
