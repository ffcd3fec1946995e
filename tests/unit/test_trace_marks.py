"""Marks and calls as a runner writes them, made into operators with names, times and kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etprof.analysis.split.evidence import read_evidence
from etprof.base.errors import InputFileError
from etprof.run.kernel_trace import KernelTrace, SizedCalls, match_works, read_kernel_trace
from etprof.tables.kernels import USES

PACK = "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"
PRODUCT = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
OTHER = "kai_run_unknown"
LABELS = ["Method::execute", "Convolution #1", "Pooling #1", "native_call_mean.out", "Copy #1"]


class Story:
    """Writes down what happens during one inference; labels stand behind their letter."""

    def __init__(self, phase: str = "Execute") -> None:
        self.document: dict[str, Any] = {
            "phase": phase, "start_ns": 5000, "marks": "", "times_ns": [], "labels": [],
            "calls": [],
        }  # fmt: skip

    def at(self, time_ns: int, mark: str, label: int | None = None) -> Story:
        self.document["marks"] += mark
        self.document["times_ns"].append(time_ns)
        self.document["labels"] += [] if label is None else [label]
        return self

    def calls(self, kernel: int, count: int, *sizes: int) -> Story:
        marks = len(self.document["marks"])
        self.document["calls"].append([marks, kernel, count, *sizes])
        return self


def usual_story(phase: str = "Execute") -> Story:
    """A delegate with one operator of two hand-overs and one of a single one; a native kernel."""
    story = Story(phase).at(0, "E", 0).at(10, "D").at(20, "B").at(30, "P").at(40, "p").at(50, "P")
    story.calls(1, 3, 16, 32, 36).calls(1, 2, 16, 32, 36).calls(0, 5, 16, 9, 3).at(90, "p")
    story.at(100, "B").at(110, "P").at(1300, "p").calls(1, 3, 16, 32, 36).calls(1, 1, 8, 32, 36)
    story.at(1400, "B").at(1410, "d").at(0, "N", 1).at(1000, "N", 2)
    story.at(1900, "E", 3).at(1910, "P").at(1950, "p").at(1960, "e")
    return story.calls(2, 2).at(2000, "e")


def document(*stories: Story) -> dict[str, Any]:
    return {
        "schema_version": 2,
        "method": "forward",
        "sme": {"requested": "sme2", "in_force": "sme2"},
        "kernels": [PACK, PRODUCT, OTHER],
        "labels": LABELS,
        "load": {"calls": [[0, 0, 4, 1, 2, 3], [0, 0, 6, 1, 2, 4]]},
        "executions": [story.document for story in stories],
    }


def read(tmp_path: Path, content: dict[str, Any]) -> KernelTrace:
    file = tmp_path / "m_kernels.json"
    file.write_text(json.dumps(content))
    return read_kernel_trace(file)


def test_operators_start_at_their_first_hand_over_and_end_at_their_last(tmp_path: Path) -> None:
    trace = read(tmp_path, document(usual_story()))
    assert [
        (each.name, each.delegate, each.start_ns, each.duration_ns) for each in trace.operators
    ] == [
        ("Convolution #1", 0, (30,), (60,)),
        ("Pooling #1", 0, (110,), (1190,)),
        ("native_call_mean.out", None, (1900,), (60,)),
    ]
    (execution,) = trace.executions
    assert (execution.start_ns, execution.duration_ns, execution.aligned) == (5000, 2000, True)


def test_microkernel_calls_belong_to_the_operator_that_ran(tmp_path: Path) -> None:
    """C3: every thread counts for itself, by the sizes that a microkernel was given."""
    trace = read(tmp_path, document(usual_story("First"), usual_story()))
    first, second, native = trace.operators
    assert [(each.name, each.execution_calls) for each in first.kernels] == [
        (PACK, (5, 5)), (PRODUCT, (5, 5)),
    ]  # fmt: skip
    assert first.kernels[1].by_sizes == (SizedCalls(sizes=(16, 32, 36), execution_calls=(5, 5)),)
    assert [(each.sizes, each.execution_calls) for each in second.kernels[0].by_sizes] == [
        ((8, 32, 36), (1, 1)), ((16, 32, 36), (3, 3)),
    ]  # fmt: skip
    assert native.kernels == ()
    outside = [each.kernels_outside_operators for each in trace.executions]
    assert [[(each.name, each.calls) for each in calls] for calls in outside] == [[(OTHER, 2)]] * 2
    assert [(each.name, each.load_calls, each.execution_calls)
            for each in trace.kernels] == [
        (PACK, 10, (5, 5)), (PRODUCT, 0, (9, 9)), (OTHER, 0, (2, 2)),
    ]  # fmt: skip


def test_the_table_has_sizes_and_multiply_adds(tmp_path: Path) -> None:
    modes = {"sme2": read_evidence(read(tmp_path, document(usual_story())))}
    uses = [row for row in USES.of_each([modes]).records() if row["number"] is not None]
    assert [(use["number"], use["calls"], use["sizes"], use["macs"]) for use in uses] == [
        (1, 5, "5 × m 16, k_chunk_count 9, k_chunk_length 3", None),
        (1, 5, "5 × m 16, n 32, k 36", 5 * 16 * 32 * 36),
        (2, 4, "1 × m 8, n 32, k 36\n3 × m 16, n 32, k 36", (8 + 3 * 16) * 32 * 36),
    ]


def test_an_operator_without_work_takes_no_time(tmp_path: Path) -> None:
    story = Story().at(0, "E", 0).at(10, "D").at(20, "B").at(25, "B").at(30, "d").at(0, "N", 2)
    (operator,) = read(tmp_path, document(story.at(40, "e"))).operators
    assert (operator.start_ns, operator.duration_ns) == ((25,), (0,))


def test_an_inference_of_other_operators_is_kept_apart(tmp_path: Path) -> None:
    # GIVEN a first inference without the native kernel
    short = Story("First").at(0, "E", 0).at(10, "D").at(20, "B").at(30, "P").at(40, "p")
    short.calls(1, 7, 1, 1, 1).at(50, "B").at(60, "d").at(0, "N", 1).at(70, "e")
    trace = read(tmp_path, document(short, usual_story()))
    assert [each.aligned for each in trace.executions] == [False, True]
    assert [each.start_ns for each in trace.operators] == [(None, 30), (None, 110), (None, 1900)]
    assert trace.operators[0].kernels[1].execution_calls == (0, 5)
    assert trace.kernels[1].execution_calls == (7, 9)


def test_works_of_a_concatenation_are_one_operator(tmp_path: Path) -> None:
    # GIVEN works of 5, 2 and 3 µs, of which the last two are one copy
    story = Story().at(0, "E", 0).at(0, "D").at(0, "B")
    for begin_us, end_us in ((0, 5), (5, 7), (7, 10)):
        story.at(begin_us * 1000 + 1, "P").at(end_us * 1000 - 1, "p").calls(2, 1)
        story.at(end_us * 1000, "B")
    story.at(10_000, "d").at(5000, "N", 1).at(5000, "N", 4).at(10_000, "e")
    trace = read(tmp_path, document(story))
    assert trace.all_operators_named
    assert [(o.name, o.start_ns, o.duration_ns) for o in trace.operators] == [
        ("Convolution #1", (1,), (4998,)), ("Copy #1", (5001,), (4998,)),
    ]  # fmt: skip
    assert trace.operators[1].kernels[0].execution_calls == (2,)
    # GIVEN another name, which cannot have parts
    story.document["labels"][-1] = 2
    assert not read(tmp_path, document(story)).all_operators_named


@pytest.mark.parametrize(
    ("durations_us", "reported_us", "parts", "expected"),
    [
        ([[5, 2, 3, 1, 4]], [[5, 6, 4]], (False, True, False), [1, 3, 1]),
        # One inference in which the third work took no time, and one in which it took 2 µs.
        ([[5, 2, 0, 2], [5, 2, 2, 2]], [[5, 2, 2], [5, 2, 4]], (False, True, True), [1, 1, 2]),
        ([[5, 2]], [[9]], (True,), []),
        ([[1] * 7], [[7]], (True,), []),
        ([[1, 1]], [[]], (), []),
    ],
)
def test_works_are_joined_where_they_add_up(
    durations_us: list[list[int]],
    reported_us: list[list[int]],
    parts: tuple[bool, ...],
    expected: list[int],
) -> None:
    durations, reported = np.array(durations_us, float), np.array(reported_us, float)
    assert match_works(durations, reported, parts) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("marks", "EDBPpBd"),
        ("marks", "e" * 20),
        ("times_ns", [1]),
        ("labels", [0, 1, 2, 99]),
        ("calls", [[0, 3, 1]]),
        ("calls", [[0, 1]]),
        ("calls", [[0, 1, 2**62], [0, 1, 2**62]]),
        ("times_ns", [0, 10, 20, 90, 40, 50, 30, 100, 110, 1300, 1400, 1410, 0, 1, 9, 9, 9, 1, 2]),
    ],
)
def test_a_damaged_trace_is_refused(tmp_path: Path, field: str, value: object) -> None:
    story = usual_story()
    story.document[field] = value
    with pytest.raises(InputFileError, match=r"is damaged: .*; count the kernels again"):
        read(tmp_path, document(story))


def test_names_that_cannot_be_matched_cost_no_time(tmp_path: Path) -> None:
    """A stranger's file of many operators is read in seconds."""
    count = 30_000
    story = Story()
    story.document |= {
        "marks": "EDB" + "B" * count + "d" + "N" * (count - 1) + "e",
        "times_ns": [0] * (2 * count + 4),
        "labels": [0] + [4] * (count - 1),
    }
    assert not read(tmp_path, document(story)).all_operators_named
