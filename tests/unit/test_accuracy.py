"""X1: two questions on outputs, answered with absolute thresholds; degenerate references are told."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etprof.run.accuracy import (
    FLOORS,
    Question,
    Verdict,
    find_floors,
    judge_lowering,
    judge_precision,
    judge_text,
    way_to_right,
)
from etprof.statistics.likeness import Parity, compare, least_equal_share, number_kind
from etprof.tables.verdicts import alarm_of

RNG = np.random.default_rng(0)
REFERENCE = RNG.normal(size=1000)


def apart(snr_db: float, *, reference: np.ndarray = REFERENCE, index: int = 0) -> Parity:
    """An output that is `snr_db` from its reference."""
    noise = np.random.default_rng(1).normal(size=reference.size)
    noise *= np.sqrt(np.sum(reference**2) / np.sum(noise**2)) * 10 ** (-snr_db / 20)
    return compare(index, reference + noise, reference, 10, least_db=40)


def precision_of(found: Parity, precision: str = "fp16") -> Verdict:
    return judge_precision([found], FLOORS[precision])


@pytest.mark.parametrize("precision", FLOORS)
def test_the_floor_of_a_precision_is_absolute(precision: str) -> None:
    floor = FLOORS[precision].snr_db
    assert precision_of(apart(floor + 0.5), precision).answer == "passed"
    verdict = precision_of(apart(floor - 0.5), precision)
    assert (verdict.answer, verdict.least_snr_db) == ("failed", floor)
    assert verdict.snr_db == pytest.approx(floor - 0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("snr_db", "cost_db", "answer"),
    [
        (28.3, 36.0, "passed"),  # eager in half precision is no better
        (28.1, 36.0, "failed"),
        (39.9, 80.0, "failed"),  # it could be better
        (20.1, 15.0, "passed"),  # as good as what is asked of int8
        (19.9, 15.0, "failed"),
    ],
)
def test_half_precision_is_held_to_what_eager_has_in_it(
    snr_db: float, cost_db: float, answer: str
) -> None:
    """L3-7: of random networks with settled batch norms eager in half precision has 24 to 40 dB."""
    program, eager = apart(snr_db), apart(cost_db)
    verdict = judge_precision([program], FLOORS["fp16"], precision="fp16", costs={0: eager})
    assert verdict.answer == answer


def test_a_faithful_program_of_a_precision_that_is_good_enough_is_good_enough() -> None:
    """Both checks passed one program each; together they refused the sum of two allowed errors."""
    cast, kernels = (np.random.default_rng(seed).normal(size=100_000) for seed in (1, 2))
    exact = np.random.default_rng(3).normal(size=100_000)
    converted = exact + cast * 10 ** (-36 / 20)
    program = converted + kernels * 10 ** (-33.1 / 20)
    cost = compare(0, converted, exact, 10, least_db=40)
    lowered = compare(0, program, converted, 10, least_db=40)
    precise = compare(0, program, exact, 10, least_db=40)
    assert judge_lowering([lowered], "fp16", {0: cost}).answer == "passed"
    verdict = judge_precision([precise], FLOORS["fp16"], precision="fp16", costs={0: cost})
    assert verdict.answer == "passed"


@pytest.mark.parametrize("precision", ["int8", "8da4w", "fp32"])
def test_other_floors_stay_as_they_are(precision: str) -> None:
    """A calibration that ruins eager too is no excuse, nor is a float32 model that is not itself."""
    floors = FLOORS[precision]
    program, eager = apart(floors.snr_db - 1), apart(floors.snr_db - 10)
    verdict = judge_precision([program], floors, precision=precision, costs={0: eager})
    assert verdict.answer == "failed"


def test_a_floor_of_the_users_own_stays() -> None:
    asked = FLOORS["fp16"].model_copy(update={"snr_db": 50.0})
    verdict = judge_precision([apart(45)], asked, precision="fp16", costs={0: apart(40)})
    assert (verdict.answer, verdict.least_snr_db) == ("failed", 50.0)


def test_what_misses_a_floor_by_a_hair_does_not_read_as_if_it_met_it() -> None:
    """It said: 20.0 dB instead of 20.0 dB or more."""
    floor = FLOORS["fp16"].snr_db
    told = precision_of(apart(floor - 0.01)).reason
    assert f"just under {floor:.1f} dB signal to noise instead of {floor:.1f} dB or more" in told
    assert "just under" not in precision_of(apart(floor - 0.5)).reason


@pytest.mark.parametrize(
    ("snr_db", "costs_db", "answer"),
    [
        (41.0, 60.0, "passed"),  # far from what is possible, but good
        (39.0, 60.0, "failed"),
        (30.1, 33.0, "passed"),  # the network amplifies rounding: eager is no better
        (26.1, 33.0, "passed"),  # by up to 5.1 dB in 29 random networks, three deviations are 7
        (25.9, 33.0, "failed"),
        (24.0, 26.0, "passed"),  # L3-7: it was refused for less than 25
        (19.0, 20.0, "failed"),  # and the margin ends here
        (-1.8, 60.3, "failed"),  # a wrong kernel
        (-1.8, -10.0, "failed"),  # eager is ruined too: that excuses nothing
        (41.0, None, "passed"),  # eager is equal to float32
    ],
)
def test_lowering_is_held_against_the_converted_model(
    snr_db: float, costs_db: float | None, answer: str
) -> None:
    costs = {} if costs_db is None else {0: apart(costs_db)}
    verdict = judge_lowering([apart(snr_db)], "fp16", costs)
    assert verdict.answer == answer


@given(st.floats(-20, 200), st.floats(-20, 200))
def test_no_margin_lowers_a_floor(snr_db: float, costs_db: float) -> None:
    for precision, least in {"fp32": 60, "fp16": 20, "int8": 12, "8da4w": 10}.items():
        verdict = judge_lowering([apart(snr_db)], precision, {0: apart(costs_db)})
        assert verdict.answer == "failed" or snr_db >= least - 1e-6


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ([], "it is empty"),
        ([0.0, 0.0], "it is 0 everywhere"),
        ([0.0], "it is 0 everywhere"),
        ([3.0, 3.0], "it is 3 everywhere"),
        ([1e-41, 2e-41], "it is 2e-41 at most, where float32 has no precision left"),
        ([1.0, math.nan], "1 of its 2 values are not finite"),
        ([1.0, -math.inf], "1 of its 2 values are not finite"),
        ([3.0], None),
        ([1.0, 2.0], None),
    ],
)
def test_a_degenerate_reference_is_told_and_not_scored(
    reference: list[float], told: str | None
) -> None:
    expected = np.array(reference, dtype=float)
    verdict = precision_of(compare(0, expected, expected, 1))
    assert verdict.answer == ("passed" if told is None else "unknown")
    assert (told or "") in verdict.reason


def test_what_is_not_finite_on_one_side_fails_whatever_the_reference() -> None:
    for reference in ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]):
        found = compare(2, np.array([1.0, math.nan, math.inf]), np.array(reference), 3)
        verdict = precision_of(found)
        assert verdict.answer == "failed"
        assert verdict.reason.startswith("output 2 has 2 values that are not finite")


def test_the_worst_output_decides_and_others_are_told() -> None:
    degenerate = compare(1, np.zeros(3), np.zeros(3), 1)
    verdict = judge_precision([apart(60), degenerate, apart(20, index=2)], FLOORS["fp16"])
    assert (verdict.answer, verdict.output) == ("failed", 2)
    assert "output 1 is not scored" in verdict.reason
    alone = judge_precision([degenerate], FLOORS["fp16"])
    assert (alone.answer, alone.snr_db) == ("unknown", None)
    assert judge_precision([], FLOORS["fp16"]).answer == "unknown"


def test_the_largest_entry_counts_where_it_is_clear() -> None:
    # GIVEN 10 rows of which one has no clear winner, and outputs with two other ones
    reference = np.tile([0.0, 0.0, 5.0], (10, 1))
    reference[0] = [1.0, 0.0, 1.0001]
    value = reference.copy()
    value[0, 0] = 1.001
    found = compare(0, value.ravel(), reference.ravel(), 3, least_db=40)
    assert (found.top1, found.clear_top1) == (0.9, 1.0)
    assert precision_of(found).answer == "passed"
    # AND GIVEN a clear one that another wins: a floor of its own says so
    value[1] = [5.1, 0.0, 5.0]
    lenient = FLOORS["fp16"].model_copy(update={"snr_db": 0.0, "cosine": 0.0})
    again = compare(0, value.ravel(), reference.ravel(), 3, least_db=40)
    verdict = judge_precision([again], lenient)
    assert verdict.answer == "failed"
    assert "88.9 % of the rows" in verdict.reason


def test_a_cosine_below_its_floor_fails() -> None:
    floors = FLOORS["fp16"].model_copy(update={"snr_db": 0.0, "top1": 0.0})
    verdict = judge_precision([apart(20)], floors)
    assert verdict.answer == "failed"
    assert "a cosine of" in verdict.reason


def test_whole_numbers_agree_or_do_not() -> None:
    ids = np.array([7.0, 30000.0, 5.0, 9.0])
    other = np.array([8.0, 30000.0, 5.0, 9.0])
    assert precision_of(compare(0, ids, ids, 4, kind="label")).answer == "passed"
    verdict = precision_of(compare(0, other, ids, 4, kind="label"))
    assert (verdict.answer, verdict.snr_db, verdict.top1) == ("failed", None, 0.75)
    assert (
        verdict.reason
        == "output 0 has 25.0 % of its whole numbers different instead of 5.00 % or fewer"
    )


def labels(differing: int, count: int = 1000) -> Parity:
    """A map of classes of which so many are another class."""
    classes = RNG.integers(0, 5, count).astype(float)
    other = classes.copy()
    other[:differing] = (other[:differing] + 1) % 5
    return compare(0, other, classes, 10, kind="label")


@pytest.mark.parametrize("precision", FLOORS)
def test_lowering_that_changes_labels_is_not_faithful(precision: str) -> None:
    """It passed whatever the labels were: nothing but the ratio was looked at, which they lack."""
    allowed = round(1000 * (1 - FLOORS[precision].top1))
    assert judge_lowering([labels(allowed - 1)], precision, {}).answer == "passed"
    verdict = judge_lowering([labels(allowed + 1)], precision, {})
    assert verdict.answer == "failed"
    assert verdict.equal_share == pytest.approx(1 - (allowed + 1) / 1000)
    assert verdict.least_equal_share == FLOORS[precision].top1


@pytest.mark.parametrize(("differing", "answer"), [(140, "passed"), (160, "failed")])
def test_labels_that_eager_in_half_changes_too_are_faithful(differing: int, answer: str) -> None:
    """Near ties flip: eager in half precision has 5 % others than float32, so 15 % are explained."""
    costs = {0: labels(50)}
    assert judge_lowering([labels(differing)], "fp16", costs).answer == answer
    assert judge_lowering([labels(210)], "fp16", {0: labels(900)}).answer == "failed"


def test_outputs_of_two_modes_that_are_labels_are_compared() -> None:
    """The kernel of one mode could give any class at all, and the speedup counted."""
    assert not labels(1000).is_within(40.0)
    assert not labels(51).is_within(40.0)
    assert labels(50).is_within(40.0)
    assert not compare(0, np.full(4, np.nan), np.zeros(4), 4).is_within(40.0)


@pytest.mark.parametrize("precision", FLOORS)
def test_as_many_labels_as_largest_entries_have_to_agree(precision: str) -> None:
    floors = FLOORS[precision]
    assert least_equal_share(floors.snr_db) == floors.top1


def test_levels_are_near_or_equal() -> None:
    """Of pixels one off is a small error; of a mask in bytes nearly all are equal."""
    assert [number_kind(name) for name in ("uint8", "int16", "bool", "int64", "bfloat16")] == [
        "level", "level", "label", "label", "real"
    ]  # fmt: skip
    pixels = RNG.integers(100, 256, 1000).astype(float)
    near = compare(0, pixels - 1, pixels, 10, kind="level")
    assert (near.equal_share, near.is_within(40.0), near.is_within(50.0)) == (0.0, True, False)
    assert precision_of(near).answer == "passed"
    assert precision_of(compare(0, pixels[::-1], pixels, 10, kind="level")).answer == "failed"
    mask = (RNG.random(1000) < 0.5).astype(float)
    flipped = mask.copy()
    flipped[:20] = 1 - flipped[:20]
    parity = compare(0, flipped, mask, 10, kind="level")
    assert parity.snr_db is not None
    assert parity.snr_db < 20
    assert precision_of(parity).answer == "passed"
    assert parity.is_within(40.0)


def test_a_precision_has_the_thresholds_of_its_kind() -> None:
    assert find_floors("int8_per_tensor") == FLOORS["int8"]
    assert find_floors("8da4w_b32") == FLOORS["8da4w"]
    assert find_floors("fp8") is None
    assert find_floors(None) is None
    assert judge_lowering([apart(90)], "fp8", {}).answer == "unknown"


def test_the_ratio_is_of_signal_to_error_power() -> None:
    found = compare(0, np.array([3.3, 4.4]), np.array([3.0, 4.0]), 2)
    assert found.snr_db == pytest.approx(20.0)
    assert found.max_abs == pytest.approx(0.4)
    assert found.cosine == pytest.approx(1.0)
    assert found.top1 == 1.0


@pytest.mark.parametrize(
    ("precision", "own", "eager", "answer"),
    [
        ("8da4w_b32", 12.4, 10.0, "passed"),
        ("8da4w_b32", 12.6, 10.0, "failed"),
        ("int8_dynamic", 11.2, 10.0, "failed"),
        ("fp32", 10.1, 10.0, "failed"),
        ("8da4w", None, 10.0, "failed"),  # no number at all
        ("8da4w", None, None, "failed"),
        ("8da4w", 10.0, None, "unknown"),  # nobody read it in float32
        ("8da4w", 256.0, 200.0, "unknown"),  # it never knew the text
        ("of next year", 10.0, 10.0, "unknown"),
    ],
)
def test_a_text_is_judged_by_perplexity(
    precision: str, own: float | None, eager: float | None, answer: str
) -> None:
    verdict = judge_text(precision, own, eager, 256)
    assert verdict.answer == answer
    assert (answer == "passed") == (not verdict.reason)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_one_value_that_is_no_number_fails_both_questions(odd: float) -> None:
    """M3, tests: verdicts tolerated one NaN; the test had two."""
    value = REFERENCE.copy()
    value[3] = odd
    found = compare(0, value, REFERENCE, 10, least_db=40)
    for verdict in (
        precision_of(found, "8da4w"),
        judge_lowering([found], "8da4w", {}),
    ):
        assert verdict.answer == "failed"
        assert "1 values that are not finite on one side only" in verdict.reason


def test_one_reason_of_several_places_is_said_once() -> None:
    """The export's verdict and the run's were the same two lines, above everything else."""
    reason = "output 2 has 60.0 % of its whole numbers different"
    verdicts = tuple(
        Verdict(question="precision", answer="failed", where=where, reason=reason)
        for where in ("export", "linux_auto")
    )
    run: Any = SimpleNamespace(wrong=verdicts, experiments=[SimpleNamespace(name="linux_auto")])
    assert alarm_of(run) == (
        f"Do not use these results: export and linux_auto: precision is not good enough: {reason}."
    )
    run = SimpleNamespace(
        wrong=verdicts[1:], experiments=[*run.experiments, SimpleNamespace(name="b")]
    )
    assert alarm_of(run) == (
        "linux_auto is excluded; the other results are valid. linux_auto: precision is not good "
        f"enough: {reason}."
    )
    assert alarm_of(SimpleNamespace(wrong=(), experiments=[])) is None  # type: ignore[arg-type]


def test_an_answer_counts_the_reasons_that_have_no_room() -> None:
    """Wrong outputs of many kinds took more than the 15 lines of an answer."""
    verdicts = tuple(
        Verdict(question="precision", answer="failed", where="export", reason=f"output {i} is off")
        for i in range(4)
    )
    run: Any = SimpleNamespace(wrong=verdicts, experiments=[])
    text = alarm_of(run, most_reasons=2)
    assert text is not None
    assert text.endswith("output 1 is off; and 2 more reasons.")
    assert "output 0 is off" in text
    assert "more reason" not in str(alarm_of(run, most_reasons=4))
    assert str(alarm_of(run)).count("is off") == 4


@pytest.mark.parametrize(
    ("question", "precision", "calibrates"),
    [("precision", "fp16", False), ("precision", "int8", True), ("precision", None, True),
     ("lowering", "fp16", False)],
)  # fmt: skip
def test_nothing_of_a_float_precision_is_calibrated(
    question: Question, precision: str | None, calibrates: bool
) -> None:
    failed = [Verdict(question=question, answer="failed")]
    text = way_to_right(failed, precision)
    assert ("calibrate" in text) == calibrates
    assert text.endswith("--allow-inaccurate continues anyway, and every report says so")
