"""The split of an execution closes: nothing is counted twice, nothing is lost."""

from __future__ import annotations

import pytest

from etprof.analysis.split.executions import examine_executions, keep_near_median
from etprof.analysis.split.operators import (
    OperatorSplit,
    PartTimes,
    category_times,
    class_times,
    split_operators,
)
from etprof.base.errors import InputFileError
from etprof.etdump.reader import load_etdump
from tests.etdump_writer import Table, etdump, event, event_block, profile_event, write_etdump
from tests.known_etdumps import (
    CALL_US,
    EXECUTE_US,
    OPERATOR_CALL_US,
    US,
    execution_events,
    foreign_etdump,
    load_block,
    runner_etdump,
    span,
    timed,
)


def split(data: bytes) -> OperatorSplit:
    dump = load_etdump(data)
    return split_operators(keep_near_median([examine_executions(dump)]))


def test_only_steady_executions_count() -> None:
    # GIVEN a slow first inference and a warm-up in event blocks of their own
    result = split(runner_etdump(executions=3))
    # THEN neither is in the totals, and the first is told apart
    assert result.executions == 3
    assert timed(result).execute.total_ns == 3 * EXECUTE_US * US
    assert timed(result).first_execute_ns == 10 * EXECUTE_US * US
    assert timed(result).load_ns == {"Program::load_method": 500 * US, "Method::init": 400 * US}


def test_in_files_of_other_runners_the_first_of_several_executions_is_apart() -> None:
    result = split(foreign_etdump(executions=4))
    assert result.executions == 4
    assert timed(result).first_execute_ns == 10 * EXECUTE_US * US
    assert timed(result).execute_median_ns == EXECUTE_US * US


def test_a_single_execution_is_used_whatever_it_is() -> None:
    data = bytes(write_etdump(etdump([event_block(b"Execute", execution_events())])).data)
    assert split(data).executions == 1


def test_rows_are_innermost_events_in_program_order() -> None:
    rows = split(runner_etdump()).rows
    assert [(row.label, timed(row).mean_ns, row.is_delegated, row.calls) for row in rows] == [
        ("Convolution (NHWC, F32) IGEMM #1", 60 * US, True, 3),
        ("Softmax (NC, F32) #1", 20 * US, True, 3),
        ("native_call_addmm.out", 30 * US, False, 3),
    ]


def test_overheads_close_the_sum() -> None:
    """F-d: what XNNPACK may have rounded off its operators, a microsecond each, is no overhead."""
    result = split(runner_etdump())
    assert {row.label: timed(row).mean_ns for row in result.overheads} == {
        "Delegate overhead": (CALL_US - 80 - 2) * US,
        "Rounding of operators' times": 2 * US,
        "Operator dispatch": 2 * US,
        "Program execution": (EXECUTE_US - CALL_US - OPERATOR_CALL_US) * US,
    }
    assert sum(times.share for _, times in result.parts) == pytest.approx(1.0)
    assert sum(times.total_ns for _, times in result.parts) == timed(result).execute.total_ns


def test_category_totals() -> None:
    found = category_times(split(runner_etdump(executions=1)))
    assert {name: times.total_ns for name, times in found.items()} == {
        "Convolution": 60 * US,
        "GEMM": 30 * US,
        "Data Movement": 0,
        "Elementwise": 0,
        "Other": 35 * US,
    }


def test_classes_are_largest_first_and_complete() -> None:
    found = class_times(split(runner_etdump(executions=1)))
    totals = {entry: times.total_ns for entry, times in found.items()}
    assert {entry.finer: total for entry, total in totals.items()} == {
        "convolution": 60 * US,
        "linear": 30 * US,
        "softmax": 20 * US,
        "delegate overhead": 8 * US,
        "framework overhead": 5 * US,
        "rounding": 2 * US,
    }
    assert list(totals.values()) == sorted(totals.values(), reverse=True)


def test_repeated_calls_within_an_execution_are_one_row() -> None:
    # GIVEN a program that runs the same instruction twice in one inference, as loops do
    twice = [
        span(b"native_call_add.out", 0, 3, instruction_id=1),
        span(b"OPERATOR_CALL", 0, 4, instruction_id=1),
        span(b"native_call_add.out", 4 * US, 5, instruction_id=1),
        span(b"OPERATOR_CALL", 4 * US, 6, instruction_id=1),
        span(b"Method::execute", 0, 12),
    ]
    data = bytes(write_etdump(etdump([event_block(b"Execute", twice)])).data)
    # THEN both calls are in it
    (row,) = split(data).rows
    assert (row.calls, row.executions, timed(row).mean_ns, timed(row).median_ns) == (
        2,
        1,
        8 * US,
        4 * US,
    )


def test_the_same_operator_at_two_instructions_is_two_rows() -> None:
    events = [
        span(b"native_call_add.out", 0, 3, instruction_id=1),
        span(b"native_call_add.out", 3 * US, 5, instruction_id=2),
        span(b"Method::execute", 0, 12),
    ]
    data = bytes(write_etdump(etdump([event_block(b"Execute", events)])).data)
    result = split(data)
    assert [row.instruction_id for row in result.rows] == [1, 2]
    # AND kernels without a call of their own take nothing from the calls' overhead
    assert [timed(row).total_ns for row in result.overheads] == [0, 0, 4 * US]


def test_a_delegate_that_numbers_its_operators_is_one_row_a_call() -> None:
    events = [
        span(None, 0, 7, instruction_id=0, delegate_debug_id_int=12),
        span(b"DELEGATE_CALL", 0, 8, instruction_id=0),
        span(b"Method::execute", 0, 9),
    ]
    data = bytes(write_etdump(etdump([event_block(b"Execute", events)])).data)
    result = split(data)
    assert [(row.label, timed(row).total_ns) for row in result.rows] == [
        ("call of an unknown delegate", 8 * US)
    ]
    assert result.unknown_names == ("call of an unknown delegate",)


def test_names_without_a_class_are_reported_and_never_summed_twice() -> None:
    # GIVEN an event that is neither container nor kernel, inside an operator call
    events = [
        span(b"my_custom_scope", 0, 5, instruction_id=1),
        span(b"native_call_frobnicate.out", 0, 8, instruction_id=1),
        span(b"OPERATOR_CALL", 0, 9, instruction_id=1),
        span(b"Method::execute", 0, 10),
    ]
    data = bytes(write_etdump(etdump([event_block(b"Execute", events)])).data)
    result = split(data)
    assert result.unknown_names == ("my_custom_scope", "native_call_frobnicate.out")
    assert sum(times.total_ns for _, times in result.parts) == 10 * US


def test_a_timer_of_32_bits_may_wrap() -> None:
    start = 2**32 - 2 * US
    inner = profile_wrapping(b"native_call_mul.out", start, 5 * US)
    whole = profile_wrapping(b"Method::execute", start, 6 * US)
    data = bytes(write_etdump(etdump([event_block(b"Execute", [inner, whole])])).data)
    assert timed(split(data)).execute.total_ns == 6 * US


def profile_wrapping(name: bytes, start: int, length: int) -> Table:
    return event(profile=profile_event(name, start_time=start, end_time=(start + length) % 2**32))


@pytest.mark.parametrize("blocks", [[], [load_block()]], ids=["no blocks", "load only"])
def test_without_an_execution_there_is_nothing_to_analyse(blocks: list[Table]) -> None:
    data = bytes(write_etdump(etdump(blocks)).data)
    with pytest.raises(InputFileError, match="no steady Method::execute event"):
        split(data)


def test_a_schema_that_is_not_known_is_refused() -> None:
    data = bytes(
        write_etdump(etdump([event_block(b"Execute", execution_events())], version=1)).data
    )
    with pytest.raises(
        InputFileError, match="the ETDump has schema version 1, and only 0 is known"
    ):
        split(data)


@pytest.mark.parametrize(
    ("launches_ns", "lowest_ns"), [((1.0, 400.0, 2.0), 0.0), ((100.0, 101.0, 102.0), 98.516)]
)
def test_no_time_is_below_zero(launches_ns: tuple[float, ...], lowest_ns: float) -> None:
    """An operator of 163 µs had an interval from -92 µs."""
    mean_ns = sum(launches_ns) / len(launches_ns)
    interval = PartTimes(sum(launches_ns), launches_ns, mean_ns, 0.1).interval
    assert interval is not None
    assert interval.low == pytest.approx(lowest_ns, abs=1e-3)
    assert interval.high > mean_ns


def test_what_is_a_difference_may_be_below_zero() -> None:
    interval = PartTimes(-6.0, (-3.0, -2.0, -1.0), -2.0, -0.1).interval
    assert interval is not None
    assert interval.low < -3.0
