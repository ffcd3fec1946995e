"""Edges of what is judged: outputs, texts, trials of a search, and what a runner says of itself."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from etprof.base.errors import InputFileError
from etprof.run.accuracy import (
    FLOORS,
    TextQuality,
    Verdict,
    export_place,
    format_differing,
    judge_lowering,
    judge_precision,
    judge_text,
    reachable_floors,
    worst_step,
)
from etprof.run.optimization import (
    Gain,
    KernelCounts,
    Trial,
    compare,
    exclusions_of,
    judge_gains,
    pareto_front,
    smallest_gain,
)
from etprof.run.program import AppliedRewrite
from etprof.run.runner_result import (
    Cpu,
    GenerationResult,
    LoadTime,
    Memory,
    RunnerResult,
)
from etprof.run.tensors import StoredTensor, load_outputs, load_tensor
from etprof.statistics.likeness import Parity
from tests.world.results import result_document

if TYPE_CHECKING:
    from etprof.run.accuracy import Answer, Question


def parity(**figures: Any) -> Parity:  # noqa: ANN401 - figures of any kind
    """An output that is good in every way, but for `figures`."""
    good: dict[str, Any] = {
        "index": 0, "identical": False, "max_abs": 0.1, "max_rel": 0.1, "mse": 0.01, "snr_db": 90.0,
        "cosine": 1.0, "top1": 1.0, "clear_top1": 1.0, "nonfinite_differences": 0,
    }  # fmt: skip
    return Parity(**{**good, **figures})


def whole(equal_share: float, **figures: Any) -> Parity:  # noqa: ANN401 - figures of any kind
    """An output of whole numbers of which so many are equal."""
    none = {"snr_db": None, "cosine": None, "top1": equal_share, "clear_top1": None}
    return parity(**{**none, "equal_share": equal_share, **figures})


@pytest.mark.parametrize(
    ("precision", "cost", "snr_db", "cosine", "top1"),
    [
        # 7 dB of margin are 5.01187 times the error's power, and its own makes 6.01187: 7.7901 dB.
        ("fp16", parity(snr_db=33.0), 25.2099, 0.9995, 0.95),
        ("fp16", parity(cosine=0.9999), 40.0, 0.99939881, 0.95),
        ("fp16", parity(clear_top1=0.975), 40.0, 0.9995, 0.925),  # three times as many flip
        ("fp16", parity(clear_top1=0.975, equal_share=0.97), 40.0, 0.9995, 0.91),
        ("fp16", parity(snr_db=None, cosine=None, clear_top1=None), 40.0, 0.9995, 0.95),
        ("fp16", parity(snr_db=1.0, cosine=0.5, clear_top1=0.1), 20.0, 0.99, 0.9),  # int8's
        ("bf16", parity(snr_db=35.0, cosine=0.9998), 27.2099, 0.99879763, 0.9),
        ("fp16", None, 40.0, 0.9995, 0.95),
        ("int8", parity(snr_db=1.0), 20.0, 0.99, 0.9),
        ("fp32", parity(snr_db=1.0), 80.0, 0.99999, 0.99),
    ],
)
def test_of_a_half_no_more_is_asked_than_eager_has_with_a_second_rounding(
    precision: str, cost: Parity | None, snr_db: float, cosine: float, top1: float
) -> None:
    floors = reachable_floors(FLOORS[precision], precision, cost)
    assert floors.snr_db == pytest.approx(snr_db, abs=1e-3)
    assert floors.cosine == pytest.approx(cosine, abs=1e-8)
    assert floors.top1 == pytest.approx(top1, abs=1e-9)


@pytest.mark.parametrize(
    ("precision", "cost_db", "floor_db"),
    [
        ("fp16", None, 40), ("fp16", 80.0, 40), ("fp16", 33.0, 26), ("fp16", 10.0, 20),
        ("bf16", None, 30), ("bf16", 35.0, 28), ("bf16", 10.0, 20),
        ("int8", None, 20), ("int8_per_tensor", 18.0, 15), ("int8", 1.0, 12),
        ("8da4w", None, 15), ("8da4w_b32", 14.5, 11.5), ("8da4w", 1.0, 10),
        ("fp32", None, 80), ("fp32", 70.0, 67), ("fp32", 1.0, 60),
    ],
)  # fmt: skip
def test_a_program_may_be_a_margin_further_from_eager_than_that_is_from_float32(
    precision: str, cost_db: float | None, floor_db: float
) -> None:
    costs = {0: parity(snr_db=cost_db)}
    for near, answer in ((0.0, "passed"), (-0.01, "failed")):
        verdict = judge_lowering([parity(snr_db=floor_db + near)], precision, costs)
        assert (verdict.least_snr_db, verdict.answer) == (floor_db, answer)


@pytest.mark.parametrize(
    ("precision", "least_db"), [("fp16", 20), ("int8", 12), ("8da4w", 10), ("fp32", 60)]
)
def test_of_inputs_that_are_made_up_the_least_is_asked(precision: str, least_db: float) -> None:
    verdict = judge_lowering([parity(snr_db=least_db)], precision, {}, are_made_up=True)
    assert (verdict.answer, verdict.least_snr_db) == ("passed", least_db)
    labels = judge_lowering([whole(0.8)], precision, {}, are_made_up=True)
    assert (labels.answer, labels.least_equal_share) == ("passed", 0.8)


@pytest.mark.parametrize(
    ("cost_share", "least"), [(None, 0.95), (1.0, 0.95), (0.96, 0.88), (0.9, 0.8)]
)
def test_three_times_as_many_whole_numbers_may_differ_as_eager_changes(
    cost_share: float | None, least: float
) -> None:
    costs = {} if cost_share is None else {0: whole(cost_share)}
    verdict = judge_lowering([whole(0.7)], "fp16", costs, "phone")
    assert verdict.least_equal_share == pytest.approx(least)
    assert (verdict.question, verdict.answer, verdict.where) == ("lowering", "failed", "phone")
    # Of floats nothing is to be equal, and the costs of another output are not this one's.
    assert judge_lowering([parity()], "fp16", costs).least_equal_share is None
    assert judge_lowering([whole(0.7, index=1)], "fp16", costs).least_equal_share == 0.95


@pytest.mark.parametrize(
    ("precision", "passes", "fails"),
    [("fp32", 1000.9, 1001.1), ("fp16", 1019.9, 1020.1), ("bf16", 1049.9, 1050.1),
     ("int8", 1099.9, 1100.1), ("int8_dynamic", 1099.9, 1100.1), ("8da4w", 1250.0, 1250.1)],
)  # fmt: skip
def test_a_precision_may_raise_the_perplexity_so_far(
    precision: str, passes: float, fails: float
) -> None:
    answers = [
        judge_text(precision, perplexity, 1000.0, 10_000).answer for perplexity in (passes, fails)
    ]
    assert answers == ["passed", "failed"]


def test_a_ruined_text_is_told_with_both_perplexities() -> None:
    assert judge_text("8da4w", 30.0, 20.0, 256).reason == (
        "its perplexity of the text is 30.0 instead of float32's 20.0, 1.50 times as much and not "
        "1.25 at most"
    )


def test_a_model_knows_a_text_up_to_half_of_its_vocabulary() -> None:
    assert judge_text("fp16", 128.0, 128.0, 256).answer == "passed"
    verdict = judge_text("fp16", 128.0, 129.0, 256)
    assert verdict.answer == "unknown"
    assert "its perplexity in float32 is 129 of 256 tokens" in verdict.reason


def test_what_just_meets_every_floor_is_good_enough() -> None:
    floors = FLOORS["fp16"]
    just = parity(snr_db=40.0, cosine=0.9995, clear_top1=0.95)
    assert judge_precision([just], floors).answer == "passed"
    assert judge_precision([whole(0.95)], floors).answer == "passed"
    # Whole numbers whose ratio is known may be near instead of equal.
    assert judge_precision([whole(0.1, snr_db=40.0)], floors).answer == "passed"


LOUD = "30.0 dB signal to noise instead of 40.0 dB or more"
CLEAR = "the same largest entry in {} of the rows where it is clear, instead of 95.0 % or more"


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"snr_db": 30.0}, LOUD),
        ({"snr_db": 39.99}, "just under 40.0 dB signal to noise instead of 40.0 dB or more"),
        ({"snr_db": -math.inf}, "-3000 dB signal to noise instead of 40.0 dB or more"),
        ({"cosine": 0.98}, "a cosine of 0.98 instead of 0.9995 or more"),
        ({"cosine": 0.9994951}, "a cosine of just under 0.9995 instead of 0.9995 or more"),
        ({"clear_top1": 0.9}, CLEAR.format("90.0 %")),
        ({"clear_top1": 0.94996}, CLEAR.format("just under 95.0 %")),
        ({"nonfinite_differences": 1, "degenerate": "it is empty"},
         "1 values that are not finite on one side only"),
        ({"snr_db": 30.0, "cosine": 0.98},
         f"{LOUD} and a cosine of 0.98 instead of 0.9995 or more"),
    ],
)  # fmt: skip
def test_each_shortfall_is_told_with_what_was_asked(figures: dict[str, Any], reason: str) -> None:
    verdict = judge_precision([parity(index=3, **figures)], FLOORS["fp16"], "phone")
    assert (verdict.answer, verdict.output, verdict.where) == ("failed", 3, "phone")
    assert verdict.reason == f"output 3 has {reason}"


def test_a_verdict_keeps_the_figures_of_its_output() -> None:
    verdict = judge_precision(
        [parity(snr_db=-math.inf, cosine=0.25, top1=0.5, clear_top1=0.75)], FLOORS["int8"]
    )
    assert verdict.model_dump(exclude={"reason"}) == {
        "question": "precision", "answer": "failed", "where": "export", "output": 0, "step": None,
        "snr_db": -3000.0, "least_snr_db": 20.0, "cosine": 0.25, "top1": 0.5, "equal_share": None,
        "least_equal_share": None,
    }  # fmt: skip
    labels = judge_precision([whole(0.9)], FLOORS["int8"])
    assert (labels.equal_share, labels.least_equal_share) == (0.9, 0.9)


@pytest.mark.parametrize(
    ("ratios_db", "output"),
    [([50.0, 45.0, 60.0], 1), ([None, 60.0], 1), ([60.0, None], 0), ([None, None], 0)],
)
def test_of_outputs_that_hold_the_furthest_one_is_told(
    ratios_db: list[float | None], output: int
) -> None:
    parities = [parity(index=index, snr_db=ratio) for index, ratio in enumerate(ratios_db)]
    assert judge_precision(parities, FLOORS["fp16"]).output == output


def test_outputs_that_are_not_scored_are_told_once_each() -> None:
    empty = [parity(index=index, degenerate="it is empty") for index in range(2)]
    assert judge_precision(empty, FLOORS["fp16"]).reason == (
        "output 0 is not scored: of the reference, it is empty; "
        "output 1 is not scored: of the reference, it is empty"
    )
    # One that holds decides, and one that fails still more.
    mixed = [empty[0], parity(index=1, snr_db=45.0)]
    verdict = judge_precision(mixed, FLOORS["fp16"])
    assert (verdict.answer, verdict.output, verdict.snr_db) == ("passed", 1, 45.0)
    assert verdict.reason == "output 0 is not scored: of the reference, it is empty"
    nothing = judge_precision([], FLOORS["fp16"], "phone")
    assert (nothing.answer, nothing.where) == ("unknown", "phone")
    assert nothing.reason == "there is no output to compare"
    failed = judge_precision([*mixed, parity(index=2, snr_db=30.0)], FLOORS["fp16"])
    assert (failed.answer, failed.output) == ("failed", 2)


def of_step(answer: Answer, snr_db: float | None) -> Verdict:
    return Verdict(question="precision", answer=answer, snr_db=snr_db, reason="it is off")


@pytest.mark.parametrize(
    ("verdicts", "step", "reason"),
    [
        ({1: of_step("failed", 30.0)}, None, "it is off"),
        ({1: of_step("passed", 60.0), 2: of_step("passed", 50.0)}, 2, "it is off"),
        ({1: of_step("passed", None), 2: of_step("passed", 50.0)}, 2, "it is off"),
        ({1: of_step("unknown", 10.0), 2: of_step("passed", 50.0)}, 2, "it is off"),
        ({1: of_step("passed", 9.0), 3: of_step("failed", 5.0), 2: of_step("failed", 30.0)}, 2,
         "at inference 2 of 3, it is off"),
    ],
)  # fmt: skip
def test_the_first_inference_that_is_wrong_decides_of_several(
    verdicts: dict[int, Verdict], step: int | None, reason: str
) -> None:
    verdict = worst_step(verdicts)
    assert (verdict.step, verdict.reason) == (step, reason)


@pytest.mark.parametrize(
    ("question", "meaning"),
    [
        ("lowering", "lowering is not faithful"),
        ("precision", "precision is not good enough"),
        ("text", "the language model is ruined"),
    ],
)
def test_a_banner_says_where_which_question_and_why(question: Question, meaning: str) -> None:
    verdict = Verdict(question=question, answer="failed", where=export_place("b"), reason="no sum")
    assert verdict.text == f"export of b: {meaning}: no sum"
    assert export_place("") == "export"


def test_few_that_differ_of_many_are_no_zero() -> None:
    assert format_differing(0.999998) == "0.000200 %"
    assert format_differing(0.5) == "50.0 %"


@pytest.mark.parametrize(
    ("figures", "ratio", "agreement"),
    [
        ({"perplexity": 12.0, "eager_perplexity": 8.0}, 1.5, None),
        ({"perplexity": None, "eager_perplexity": 8.0}, None, None),
        ({"perplexity": 12.0, "new_tokens": 20, "same_tokens": 5}, None, 0.25),
        ({"perplexity": 12.0, "new_tokens": 20, "same_tokens": 0}, None, 0.0),
        ({"perplexity": 12.0, "new_tokens": 0, "same_tokens": 0}, None, None),
    ],
)
def test_a_text_s_quality_is_relative_to_the_float32_model(
    figures: dict[str, Any], ratio: float | None, agreement: float | None
) -> None:
    verdict = Verdict(question="text", answer="passed")
    quality = TextQuality(
        program="p", text="t", tokens=9, vocabulary=256, verdict=verdict, **figures
    )
    assert (quality.perplexity_ratio, quality.agreement) == (ratio, agreement)


def trial(**figures: Any) -> Trial:  # noqa: ANN401 - figures of any kind
    usual: dict[str, Any] = {
        "rewrites": (), "macs": 10_000, "macs_without_sme2": 5_000, "delegate_calls": 3,
        "outside": 9, "transposes": 4, "size_bytes": 10_000, "snr_db": 60.0, "passed": True,
    }  # fmt: skip
    return Trial(**{**usual, **figures})


def counted(macs_on_sme2: int, **figures: Any) -> KernelCounts:  # noqa: ANN401 - of any kind
    return KernelCounts(sme2_calls=1, macs_on_sme2=macs_on_sme2, **figures)


@pytest.mark.parametrize(
    ("figures", "original_macs", "share"),
    [
        ({}, 10_000, 0.5),
        ({"macs_without_sme2": 12_000}, 10_000, 0.0),
        ({"macs_without_sme2": 0}, 10_000, 1.0),
        ({"macs_without_sme2": None}, 10_000, None),
        ({}, 0, None),
        ({"macs": 12_000, "counted": counted(9_000)}, 10_000, 0.7),  # 3,000 are without
        ({"counted": counted(11_000)}, 10_000, 1.0),
        ({"macs_without_sme2": None, "counted": counted(2_500)}, 10_000, 0.25),
    ],
)
def test_a_share_is_of_the_original_s_work_and_counted_where_it_was(
    figures: dict[str, Any], original_macs: int, share: float | None
) -> None:
    assert trial(**figures).sme2_share(original_macs) == pytest.approx(share)


@pytest.mark.parametrize(
    ("counts", "is_so"),
    [
        (counted(5_010), True), (counted(4_990), True), (counted(5_011), False),
        (counted(4_989), False), (counted(5_000, problem="sme2 is wrong"), False), (None, False),
    ],
)  # fmt: skip
def test_a_count_is_as_predicted_within_a_tenth_of_a_point(
    counts: KernelCounts | None, *, is_so: bool
) -> None:
    assert trial(counted=counts).is_as_predicted() is is_so
    assert not trial(counted=counts, macs_without_sme2=None).is_as_predicted()


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, "same"),
        ({"outside": 8}, "better"), ({"outside": 10}, "worse"),
        ({"delegate_calls": 2}, "better"), ({"delegate_calls": 4}, "worse"),
        ({"transposes": 3}, "better"), ({"transposes": 5}, "worse"), ({"transposes": None}, "same"),
        ({"size_bytes": 9_900}, "same"), ({"size_bytes": 9_899}, "better"),
        ({"size_bytes": 10_100}, "same"), ({"size_bytes": 10_101}, "worse"),
        ({"macs_without_sme2": 4_991}, "same"), ({"macs_without_sme2": 4_989}, "better"),
        ({"macs_without_sme2": 5_011}, "worse"), ({"macs_without_sme2": None}, "same"),
        # A point of work and more is above all, less is below what stands outside.
        ({"macs_without_sme2": 4_890, "outside": 99}, "better"),
        ({"macs_without_sme2": 5_110, "outside": 1}, "worse"),
        ({"macs_without_sme2": 4_910, "outside": 10}, "worse"),
        ({"outside": 8, "delegate_calls": 99}, "better"),
        ({"delegate_calls": 2, "macs_without_sme2": 5_090}, "better"),
        ({"macs_without_sme2": 4_989, "transposes": 99}, "better"),
        ({"transposes": 3, "size_bytes": 99_999}, "better"),
    ],
)  # fmt: skip
def test_programs_are_compared_by_what_matters_most(figures: dict[str, Any], expected: str) -> None:
    assert compare(trial(**figures), trial(), 10_000) == expected
    opposite = {"better": "worse", "worse": "better", "same": "same"}
    if "size_bytes" not in figures:
        assert compare(trial(), trial(**figures), 10_000) == opposite[expected]


def gain(verdict: str, speed_up: float = 1.0, problem: str | None = None) -> Gain:
    return Gain.model_validate(
        {"method": "forward", "sme": "off", "pairs": 6, "speed_up": speed_up, "verdict": verdict,
         "run": "r", "problem": problem}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([], "same"), ([gain("faster")], "better"), ([gain("slower")], "worse"),
        ([gain("faster"), gain("slower")], "worse"),
        ([gain("faster"), gain("faster", problem="wrong")], "worse"),
    ],
)  # fmt: skip
def test_one_method_that_is_slower_or_wrong_spoils_a_program(
    gains: list[Gain], expected: str
) -> None:
    assert judge_gains(gains) == expected


def test_the_method_that_gains_least_stands_for_a_program() -> None:
    gains = [gain("faster", 1.5), gain("faster", 1.25), gain("faster", 2.0)]
    assert smallest_gain(gains) is gains[1]
    assert smallest_gain([]) is None


def test_an_interval_has_both_ends_or_none() -> None:
    whole_gain = gain("faster").model_copy(update={"low": 1.1, "high": 1.3})
    interval = whole_gain.interval
    assert interval is not None
    assert (interval.low, interval.high, interval.confidence) == (1.1, 1.3, 0.95)
    for end in ("low", "high"):
        assert whole_gain.model_copy(update={end: None}).interval is None


def test_a_program_is_in_front_unless_another_is_as_good_in_everything() -> None:
    programs = [
        trial(),
        trial(snr_db=None),  # no error at all, and else alike
        trial(size_bytes=9_999, snr_db=50.0),
        trial(macs_without_sme2=None, size_bytes=9_999, snr_db=50.0),
        trial(snr_db=None),
        trial(macs_without_sme2=4_000, snr_db=20.0, size_bytes=20_000),
    ]
    front = pareto_front([(program, 10_000) for program in programs])
    assert front == [False, True, True, False, True, True]


def test_a_program_is_named_by_what_changed_something() -> None:
    asked = trial(
        rewrites=("a", "b", "c"),
        exclusions=("a=encoder.1", "b=decoder", "ab=head"),
        applied=(AppliedRewrite(name="c", operators=1), AppliedRewrite(name="a", operators=2)),
    )
    assert asked.choice == ("a", "b", "c", "a=encoder.1", "b=decoder", "ab=head")
    assert asked.without_idle().choice == ("a", "c", "a=encoder.1")
    assert exclusions_of(["ab"], asked.exclusions) == ("ab=head",)


@pytest.mark.parametrize(
    ("dtype", "content", "values"),
    [
        ("bfloat16", bytes.fromhex("c03f 00c0"), [1.5, -2.0]),
        ("float16", struct.pack("<2e", 0.5, -4.0), [0.5, -4.0]),
        ("float32", struct.pack("<f", 0.25), [0.25]),
        ("float64", struct.pack("<d", 0.1), [0.1]),
        ("complex64", struct.pack("<2f", 1.0, -2.0), [1.0, -2.0]),
        ("complex128", struct.pack("<2d", 1.0, -2.0), [1.0, -2.0]),
        ("int64", struct.pack("<q", -(2**40)), [-(2.0**40)]),
        ("uint16", b"\xff\xff", [65535.0]), ("int16", b"\xff\xff", [-1.0]),
        ("bool", b"\x00\x01", [0.0, 1.0]), ("uint8", b"\x80", [128.0]), ("int8", b"\x80", [-128.0]),
    ],
)  # fmt: skip
def test_numbers_of_every_type_are_read(
    tmp_path: Path, dtype: str, content: bytes, values: list[float]
) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(content)
    tensor = load_tensor(file, dtype, None)
    assert np.array_equal(tensor.values(), np.array(values))
    # A type of two parts has half as many numbers; a file of half a number is refused.
    count = len(values) // (2 if dtype.startswith("complex") else 1)
    assert load_tensor(file, dtype, [count]).problem is None
    assert load_tensor(file, dtype, [count + 1]).problem is not None
    file.write_bytes(content[:-1])
    if len(content) > count:
        assert "not those of a whole" in str(load_tensor(file, dtype, None).problem)


def test_a_file_that_is_longer_than_its_tensor_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(24))
    assert load_tensor(file, "float32", [2, 3]).problem is None
    assert load_tensor(file, "float32", [5]).problem is not None
    with pytest.raises(InputFileError, match=r"cannot read .*a\.bin as quint8"):
        load_tensor(file, "quint8", [24]).values()
    assert load_tensor(tmp_path / "lost.bin", "int8", [1]).problem is not None


@pytest.mark.parametrize(("shape", "columns"), [(None, 1), ((), 1), ((7,), 7), ((2, 3), 3)])
def test_a_row_is_the_last_dimension(shape: tuple[int, ...] | None, columns: int) -> None:
    assert StoredTensor("a", "int8", shape).columns == columns


def answer(**fields: object) -> RunnerResult:
    return RunnerResult.model_validate(result_document(1000) | fields)


def test_outputs_are_read_by_inference_and_only_where_they_are(tmp_path: Path) -> None:
    tensor = {"dtype": "int8", "shape": [1], "size_bytes": 1}
    of_run = answer(
        outputs=[{"index": 0, **tensor}, {"index": 1, **tensor}],
        further_outputs=[{"index": 0, "step": step, **tensor} for step in (2, 3)],
        output_step=1,
    )
    for name, value in (("output_1", b"\x05"), ("output_0_step_3", b"\x07")):
        (tmp_path / f"{name}.bin").write_bytes(value)
    steps = load_outputs(tmp_path, of_run)
    contents = {(s, i): tensor.data for s, row in steps.items() for i, tensor in row.items()}
    assert contents == {(1, 1): b"\x05", (3, 0): b"\x07"}
    assert list(steps) == [1, 3]
    assert load_outputs(tmp_path, None) == {}


def test_outputs_without_a_number_are_of_the_last_inference() -> None:
    fields = {"warmup_latency_ns": [1, 1], "latency_ns": [5, 5, 5], "inferences_per_sample": 4}
    # The first, two for warming up, and three samples of four.
    assert answer(**fields).step == 15
    assert answer(**fields, output_step=2).step == 2


@pytest.mark.parametrize(
    ("steps", "total_ns"),
    [((10, 90, None), 100), ((0, 7, 50), 7), ((None, 90, 50), 50), ((10, None, 50), 50),
     ((None, None, None), None)],
)  # fmt: skip
def test_loading_takes_both_steps_or_what_they_took_together(
    steps: tuple[int | None, int | None, int | None], total_ns: int | None
) -> None:
    program_ns, method_ns, together_ns = steps
    load = LoadTime(program_ns=program_ns, method_ns=method_ns, together_ns=together_ns)
    assert load.total_ns == total_ns


@pytest.mark.parametrize(
    ("before", "after", "taken"), [(10, 70, 60), (70, 10, -60), (None, 70, None), (10, None, None)]
)
def test_loading_took_what_memory_has_more_than_before(
    before: int | None, after: int | None, taken: int | None
) -> None:
    memory = Memory(rss_before_load_bytes=before, rss_after_load_bytes=after)
    assert memory.taken_by_load_bytes == taken


@pytest.mark.parametrize(
    ("architecture", "lines", "model", "present"),
    [
        ("x86_64", ["model name\t: Xeon: 3", "flags\t\t: avx2 sse4_2 avx512_vnni amx_tile"],
         "Xeon: 3", {"avx2", "sse4.2", "avx512vnni", "amx_tile"}),
        ("aarch64", ["CPU implementer : 0x41", "CPU part : 0xd85",
                     "Features : asimd asimdhp asimddp sme smei8i32 sme2"],
         "implementer 0x41 part 0xd85", {"asimd", "fp16", "dotprod", "sme", "sme_i8i32", "sme2"}),
        ("aarch64", ["CPU part : 0xd85", "Features : fp16"], "unknown", {"fp16"}),
        ("aarch64", ["model name : Apple M4", "flags : hw.optional.AdvSIMD hw.optional.arm.FEAT_SME2"],
         "Apple M4", {"asimd", "sme2"}),
        ("riscv64", ["flags : sme2"], "unknown", set()),
    ],
)  # fmt: skip
def test_a_system_s_words_are_features_by_our_names(
    architecture: str, lines: list[str], model: str, present: set[str]
) -> None:
    document = {"architecture": architecture, "logical_cores": 4, "cpuinfo": [*lines, 7]}
    cpu = Cpu.model_validate(document)
    assert cpu.model_name == model
    assert {name for name, is_there in cpu.features.items() if is_there} == present
    assert cpu.has_sme2 is ("sme2" in present)


@pytest.mark.parametrize(
    ("tokens", "latencies", "is_so"),
    [([5], [], True), ([], [], True), ([5, 6], [9], True), ([5, 6, 7], [0, 1], True),
     ([5, 6], [], False), ([5], [9], False), ([5, 6, 7], [0, 0], False)],
)  # fmt: skip
def test_every_token_after_the_first_has_its_time(
    tokens: list[int], latencies: list[int], *, is_so: bool
) -> None:
    times = {"prefill_ns": 1, "time_to_first_token_ns": 2, "total_ns": 9}
    document = {
        "prompt_tokens": [1], "tokens": tokens, "prefill_method": "p", "decode_method": "d",
        "prefilled_tokens": 1, "repetitions": [{**times, "token_latency_ns": latencies}],
    }  # fmt: skip
    if is_so:
        assert GenerationResult.model_validate(document).tokens == tokens
        return
    with pytest.raises(ValidationError, match="token_latency_ns"):
        GenerationResult.model_validate(document)
