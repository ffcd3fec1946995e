"""Every finding has a run on which it is right to speak, and one near it on which it is silent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.findings.rules import RULES, ExperimentFindings, evaluate_run
from tests.known_runs import Op, Run
from tests.unit.test_attribution import described, node, operator
from tests.unit.test_findings import (
    CASES,
    PACKED,
    around,
    convolutions,
    findings_of,
    insight,
    on_off,
    one,
)
from tests.unit.test_findings_hold import at_threads, counted, gains, products
from tests.unit.test_output_findings import with_outputs
from tests.unit.test_work_findings import cut_apart, needless, packed_left, packed_right

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.analysis.insight import RunInsight


@dataclass(frozen=True)
class Case:
    """What the rules are asked about: each makes its runs in a folder of its own."""

    fires: Callable[[Path], ExperimentFindings]
    near: Callable[[Path], ExperimentFindings]


def of(run: Run, **changes: Any) -> Callable[[Path], ExperimentFindings]:  # noqa: ANN401
    """Asks about experiment `e` of a described run."""
    return lambda folder: findings_of(insight(folder / "run", replace(run, **changes)))


def beside(run: Run, reference: Run) -> Callable[[Path], ExperimentFindings]:
    def ask(folder: Path) -> ExperimentFindings:
        other = insight(folder / "reference", reference)
        return findings_of(insight(folder / "run", run), reference=other)

    return ask


def fp16_at(us: float) -> Callable[[Path], ExperimentFindings]:
    """Three runs of FP16 beside three of INT8, which takes 90 µs."""

    def ask(folder: Path) -> ExperimentFindings:
        mine = one(convolutions(9), latency_us=[us, us + 1] * 5)
        theirs = replace(one(convolutions(9), latency_us=[90, 91] * 5), precision="int8")
        first, *repeats = (insight(folder / f"fp16_{i}", mine) for i in range(3))
        rivals = [insight(folder / f"int8_{i}", theirs) for i in range(3)]
        return findings_of(first, rivals=rivals, repeats=repeats)

    return ask


def modes(off_us: float) -> Callable[[Path], ExperimentFindings]:
    """SME2 takes 70 µs at best; without it four threads take `off_us`."""

    def ask(folder: Path) -> ExperimentFindings:
        run = at_threads(
            ("off", 1, 200.0), ("off", 4, off_us), ("sme2", 1, 70.0), ("sme2", 2, 90.0)
        )
        found = evaluate_run(insight(folder / "run", run))
        return next(each for each in found if each.experiment == "sme2_1")

    return ask


def outputs(last: float) -> Callable[[Path], ExperimentFindings]:
    """Eager gave 4 as the last of four values."""
    return lambda folder: findings_of(with_outputs(folder, [1, 2, 3, last]))


def lost(us: int) -> Run:
    """An operator that the delegate has no node for takes `us` of 100 µs."""
    ops = [
        Op("Fully Connected (NC, F32) GEMM #1", 100 - us),
        Op("Deconvolution (NHWC, F32) IGEMM #1", us),
    ]
    return described(ops, [node("Conv2d", "a", macs=1)], [operator("a", 1)])


COPY = Op("Copy (NC, X16) #1", 30)
SPED_UP = on_off([*convolutions(70), COPY], [Op(PACKED, 30), COPY])
OTHERS = {
    "F2d": Case(
        of(one([Op("Transpose (ND, X32) #1", 29), *convolutions(71)])),
        of(one([Op("Transpose (ND, X32) #1", 9), *convolutions(91)])),
    ),
    "F4": Case(fp16_at(50), fp16_at(90)),
    "F7": Case(beside(one(around(20, 80)), one(around(10, 90))),
               beside(one(around(20, 80)), one(around(18, 82)))),
    "F8": Case(beside(SPED_UP, one(around(40, 60), sme="sme2")),
               beside(SPED_UP, one(around(60, 40), sme="sme2"))),
    "F14b": Case(modes(50), modes(80)),
    "F17": Case(outputs(5), outputs(4.001)),
    "F18": Case(of(lost(6)), of(lost(4))),
    "F19": Case(of(products(False, ["fp32"], ["half_pointwise_weights"])), of(products(False, []))),
    "F20": Case(of(counted((32, 32, 64), (2, 8, 64))), of(counted((32, 32, 64), (16, 32, 64)))),
    "F21": Case(of(packed_left(32)), of(packed_left(33))),
    "F22": Case(of(packed_right("Fully Connected (NC, PF16) GEMM #1")),
                of(packed_right("Batch Matrix Multiply (NC, PF16) GEMM #1"))),
    "F23": Case(of(cut_apart(crossing=25)), of(cut_apart(crossing=24))),
    "F24": Case(of(needless(5)), of(needless(4))),
}  # fmt: skip
"""Those that need more than one described run, or another file beside it."""
ALL = {name: Case(of(right), of(near)) for name, (right, near) in CASES.items()} | OTHERS


def fired(found: ExperimentFindings) -> set[str]:
    return {each.rule for each in found.findings}


def test_no_rule_is_without_its_two_cases() -> None:
    """A rule that is added stands here, or this fails."""
    assert set(RULES) == set(ALL)
    assert not set(CASES) & set(OTHERS)


@pytest.mark.parametrize("rule", ALL)
def test_it_speaks_where_it_is_right_and_is_silent_near_it(rule: str, tmp_path: Path) -> None:
    (tmp_path / "right").mkdir()
    (tmp_path / "near").mkdir()
    found = ALL[rule].fires(tmp_path / "right")
    (finding,) = [each for each in found.findings if each.rule == rule]
    assert finding.title
    assert finding.action or finding.severity in {"note", "good"}
    assert finding.summary.endswith(".")
    near = ALL[rule].near(tmp_path / "near")
    assert rule not in fired(near)
    # Silent because it looked: but F16, which is asked of what is not there.
    assert rule in near.checked


@pytest.mark.parametrize("rule", CASES)
def test_no_page_gains_more_time_than_there_is(rule: str, tmp_path: Path) -> None:
    """I10: whatever is planted, the gains of an experiment add up to its latency at most."""
    run = insight(tmp_path / "r", CASES[rule][0])
    for entry, found in zip(run.experiments, evaluate_run(run), strict=True):
        assert 0 <= gains(found) <= (entry.experiment.inference_ns or 0.0) * 1.000001


def untimed(folder: Path, run: Run) -> RunInsight:
    """A timed run whose experiments' operators have no times."""
    timed, bare = (
        insight(folder / name, replace(run, meaningful=is_timed))
        for name, is_timed in (("timed", True), ("bare", False))
    )
    return replace(timed, experiments=bare.experiments)


@pytest.mark.parametrize("rule", CASES)
def test_an_experiment_without_times_in_a_timed_run_is_no_defect(rule: str, tmp_path: Path) -> None:
    """It was a `LookupError`, exit code 70: rules asked the run for what the experiment lacks."""
    run = untimed(tmp_path, CASES[rule][0])
    (found,) = (each for each in evaluate_run(run) if each.experiment == "e")
    without_times = {"F5", "F10", "F13", "F15", "F16", "F17", "F19", "F20", "F21", "F22", "F23"}
    assert fired(found) <= without_times
    assert not any(each.gain_ns or each.time_ns for each in found.findings)
    # As the run's other half, and as what another is set beside.
    beside_timed = insight(tmp_path / "other", CASES[rule][0])
    assert findings_of(beside_timed, reference=run).reference_answers == ()
    assert findings_of(beside_timed, rivals=[run]).experiment == "e"
