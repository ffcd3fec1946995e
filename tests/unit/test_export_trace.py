"""Chrome traces of an export."""

from __future__ import annotations

from etprof.export.chrome_trace import draw_memory, draw_stages
from etprof.export.memory_plan import PlannedTensor
from etprof.export.stages import StageTime


def tensor(node: str, offset: int, size: int, first: int, last: int) -> PlannedTensor:
    return PlannedTensor(node, f"m.{node}", 1, offset, size, first, last)


def test_tensors_that_share_a_place_share_a_row() -> None:
    # GIVEN c in the memory that a had
    plan = [tensor("a", 0, 64, 0, 1), tensor("b", 64, 32, 1, 2), tensor("c", 0, 48, 2, 3)]
    events = draw_memory({"forward": plan})["traceEvents"]
    # THEN both are slices of one row, one after the other
    slices = {each["name"]: each for each in events if each["ph"] == "X"}
    assert [slices[name]["tid"] for name in "abc"] == [1, 2, 1]
    assert slices["a"]["ts"] + slices["a"]["dur"] == slices["c"]["ts"]
    # AND the bytes alive follow the steps
    levels = {each["ts"]: each["args"]["arena 1"] for each in events if each["ph"] == "C"}
    assert levels == {0: 64, 1: 96, 2: 80, 3: 48, 4: 0}
    names = [each["args"]["name"] for each in events if each["name"] == "thread_name"]
    assert names == ["arena 1 at 0 B", "arena 1 at 64 B"]


def test_stages_are_slices_in_microseconds() -> None:
    (_, stage) = draw_stages([StageTime("lower", 2_000, 5_000_000)])["traceEvents"]
    assert (stage["name"], stage["ts"], stage["dur"]) == ("lower", 2.0, 5000.0)
