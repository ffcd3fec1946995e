"""Operators of both sides find each other although SME changes their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from etprof.analysis.compare.alignment import AlignedOperator, align_operators, label_of
from etprof.backends.xnnpack.sme import plain_types
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, analyze


def align(folder: Path, before: Sequence[Op], after: Sequence[Op]) -> list[tuple[str | None, ...]]:
    run = Run([Experiment("a", before), Experiment("b", after)])
    one, other = analyze(folder / "r", run).experiments
    return [describe(pair) for pair in align_operators(one.split.rows, other.split.rows)]


def describe(pair: AlignedOperator) -> tuple[str | None, ...]:
    return (label_of(pair.before), label_of(pair.after), pair.match)


@pytest.mark.parametrize(
    ("packed", "plain"),
    [
        (("PF32",), ("F32",)),
        (("PF16",), ("F16",)),
        (("PQS8", "QS8", "QC8W"), ("QS8", "QC8W")),
        (("QP8", "F32", "QC4W"), ("QD8", "F32", "QC4W")),
        (("F32", "F16"), ("F32", "F16")),
    ],
)
def test_packed_types_become_plain(packed: tuple[str, ...], plain: tuple[str, ...]) -> None:
    assert plain_types(packed) == plain


def test_on_and_off_align_completely(tmp_path: Path) -> None:
    pairs = align(tmp_path, OFF_OPS, ON_OPS)
    assert len(pairs) == len(ON_OPS)
    assert [pair for pair in pairs if pair[2] != "same"] == [
        (None, "Pack LH (X16) #1", "candidate only")
    ]


def test_order_decides_between_equal_names(tmp_path: Path) -> None:
    # GIVEN the middle one of three equal operators is gone
    names = [f"Add (ND, F32) #{i}" for i in (1, 2, 3)]
    before = [Op(names[0], 1), Op("Clamp (NC, F32) #1", 1), Op(names[1], 2), Op(names[2], 3)]
    after = [Op(names[0], 1), Op("Clamp (NC, F32) #1", 1), Op(names[1], 3)]
    pairs = align(tmp_path, before, after)
    assert pairs[:3] == [
        (names[0], names[0], "same"),
        ("Clamp (NC, F32) #1", "Clamp (NC, F32) #1", "same"),
        (names[1], names[1], "same"),
    ]
    assert pairs[3] == (names[2], None, "baseline only")


def test_delegates_are_kept_apart(tmp_path: Path) -> None:
    # GIVEN the same label in two delegate calls, and a packing row in the second only
    label = "Fully Connected (NC, F32) GEMM #1"
    before = [Op(label, 5, 0), Op("native_call_relu.out", 1, 1), Op(label, 7, 2)]
    after = [
        Op(label.replace("F32", "PF32"), 3, 0),
        Op("native_call_relu.out", 1, 1),
        Op("Pack LH (X32) #1", 1, 2),
        Op(label.replace("F32", "PF32"), 4, 2),
    ]
    assert [pair[2] for pair in align(tmp_path, before, after)] == [
        "same", "same", "candidate only", "same",
    ]  # fmt: skip


def test_another_precision_aligns_by_class(tmp_path: Path) -> None:
    before = [Op("Convolution (NHWC, F16) IGEMM #1", 5), Op("Add (ND, F16) #1", 1)]
    after = [
        Op("Convert (NC, F32, QS8) #1", 1),
        Op("Convolution (NHWC, QS8, QC8W) IGEMM #1", 2),
        Op("Add (ND, QS8) #1", 1),
    ]
    assert [pair[2] for pair in align(tmp_path, before, after)] == [
        "candidate only", "other type", "other type",
    ]  # fmt: skip


def test_another_program_aligns_without_instructions(tmp_path: Path) -> None:
    # GIVEN the candidate has one more portable kernel, so instruction numbers shift
    before = [Op("Softmax (NC, F32) #1", 5, 0), Op("native_call_mean.out", 1, 1)]
    after = [
        Op("native_call_add.out", 1, 0), Op("Softmax (NC, F32) #1", 5, 1),
        Op("native_call_mean.out", 1, 2),
    ]  # fmt: skip
    assert [pair[2] for pair in align(tmp_path, before, after)] == [
        "candidate only",
        "same",
        "same",
    ]


def test_one_name_in_two_delegate_calls_is_two_operators(tmp_path: Path) -> None:
    """Of one program: what the first call has lost is not what the second has got."""
    add, copy = "Add (ND, F32) #1", "Copy (NC, X32) #1"
    relu = Op("native_call_relu.out", 1, 1)
    before = [Op(add, 5, 0), Op(copy, 1, 0), relu, Op(copy, 1, 2)]
    after = [Op(copy, 1, 0), relu, Op(add, 5, 2), Op(copy, 1, 2)]
    pairs = align(tmp_path, before, after)
    assert sorted(pair[2] for pair in pairs if pair[2] != "same" and pair[2]) == [
        "baseline only", "candidate only",
    ]  # fmt: skip
    assert (add, None, "baseline only") in pairs
    assert (None, add, "candidate only") in pairs
