"""ETDumps, ETRecords and their programs at the edges of what can be: built to the tick."""

from __future__ import annotations

import stat
import zipfile
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.base.errors import InputFileError
from etprof.etdump.plausibility import (
    Clocks,
    ClockSigns,
    Damage,
    Events,
    Outermost,
    Role,
    describe_position,
    examine_events,
    ticks_from,
)
from etprof.etdump.reader import ETDump, load_etdump
from etprof.etrecord import archive, graph, program
from etprof.run.delegation import Delegate, DelegateNode, GraphOperator, MethodReport
from tests.etdump_writer import (
    allocation_event,
    etdump,
    event,
    event_block,
    profile_event,
    write_etdump,
)
from tests.etrecord_sample import FLOAT, make_program, write_etrecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRAP = 2**32
MIB = 2**20
Row = tuple[str, int, int]
"""Name, start and end; a name of an `@` is a delegate's operator, before it its instruction."""
NAMES = {"run": "Method::execute", "delegate": "DELEGATE_CALL", "call": "OPERATOR_CALL",
         "kernel": "native_call_add.out", "load": "Program::load_method",
         "init": "Method::init"}  # fmt: skip


def dump_of(*blocks: Sequence[Row], first_block: int = 0) -> ETDump:
    """A file of event blocks."""
    tables = []
    for rows in blocks:
        events = []
        for name, start, end in rows:
            instruction, at, label = name.rpartition("@")
            details: dict[str, Any] = {"delegate_debug_id_str": label.encode()} if at else {}
            if instruction:
                details["instruction_id"] = int(instruction)
            title = b"" if at else NAMES.get(name, name).encode()
            details |= {"start_time": start, "end_time": end}
            events.append(event(profile=profile_event(title, **details)))
        tables.append(event_block(b"Execute", events))
    dump = load_etdump(bytes(write_etdump(etdump(tables)).data))
    return replace(dump, first_block=first_block)


def marks(events: Events) -> list[int]:
    return np.flatnonzero(events.impossible).tolist()


def marked(*rows: Row, **details: Any) -> list[int]:  # noqa: ANN401 - as `examine_events` takes it
    return marks(examine_events(dump_of(rows), **details))


@pytest.mark.parametrize(
    ("signs", "expected"),
    [(ClockSigns(), Clocks()),
     (ClockSigns(events=4, narrow=3, wrapped=1), Clocks(is_narrow=True)),
     (ClockSigns(events=4, narrow=3), Clocks()),
     (ClockSigns(events=4, narrow=2, wrapped=2), Clocks()),
     (ClockSigns(events=3, narrow=2, wrapped=1), Clocks(is_narrow=True)),
     (ClockSigns(delegated=4, outside=2), Clocks()),
     (ClockSigns(delegated=4, outside=3), Clocks(are_delegates_apart=True)),
     (ClockSigns(delegated=3, outside=2), Clocks(are_delegates_apart=True))],
)  # fmt: skip
def test_clocks_are_known_by_most_of_their_events(signs: ClockSigns, expected: Clocks) -> None:
    assert signs.clocks == expected


@pytest.mark.parametrize(
    ("start", "end", "ticks"), [(5, 9, 4), (7, 7, 0), (9, 5, WRAP - 4), (WRAP - 1, 0, 1)]
)
def test_ticks_go_on_where_a_narrow_clock_begins_again(start: int, end: int, ticks: int) -> None:
    assert ticks_from(start, end) == ticks


def test_events_have_roles_executions_and_time_of_their_own() -> None:
    dump = dump_of(
        [("init", 0, 3), ("load", 0, 5), ("noise", 6, 7)],
        [("kernel", 12, 17), ("call", 11, 20), ("3@gemm", 22, 30), ("delegate", 21, 33),
         ("noise", 34, 35), ("run", 10, 40), ("noise", 41, 42)],
        [("call", 50, 53), ("run", 50, 60)],
    )  # fmt: skip
    events = examine_events(dump)
    assert events.roles.tolist() == [6, 6, 0, 5, 3, 4, 2, 0, 1, 0, 3, 1]
    assert events.execution.tolist() == [-1, -1, -1, 0, 0, 0, 0, 0, 0, -1, 1, 1]
    assert events.containers.tolist() == [4, 6, 8, 10, 11]
    assert events.times is not None
    assert events.times.duration.tolist() == [3, 5, 1, 5, 9, 8, 12, 1, 30, 1, 3, 10]
    assert events.times.beyond.tolist() == [9 - 5, 12 - 8, 30 - 9 - 12, 3, 10 - 3]
    assert events.execution_possible.tolist() == [True, True]
    assert events.last == Outermost(11, 50, 60, is_load=False)
    assert events.signs == ClockSigns(events=12, narrow=12, wrapped=0, delegated=1, outside=0)
    assert marks(events) == []
    untimed = examine_events(dump, is_timed=False)
    assert (untimed.times, marks(untimed)) == (None, [])


def test_a_usable_event_is_of_an_execution_that_is_possible() -> None:
    dump = dump_of([("init", 0, 3), ("7@gemm", 11, 12), ("delegate", 10, 15), ("run", 10, 20)],
                   [("call", 31, 29), ("run", 30, 40)])  # fmt: skip
    events = examine_events(dump, {7: None})
    assert events.roles[1] == Role.FOREIGN
    assert events.execution_possible.tolist() == [True, False]
    usable = events.usable(events.execution_possible)
    assert usable.tolist() == [True, False, True, True, False, False]
    assert events.usable(np.array([False, True])).tolist() == [True, *[False] * 4, True]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [((100, 200), []), ((99, 150), [0]), ((150, 201), [0]), ((100, 100), []), ((151, 150), [0])],
)
def test_a_kernel_lies_in_its_call_to_the_tick(
    kernel: tuple[int, int], expected: list[int]
) -> None:
    assert marked(("kernel", *kernel), ("call", 100, 200), ("run", 100, 200)) == expected


@pytest.mark.parametrize(
    ("operator", "expected"),
    [((5000, 7000), []), ((5500, 7001), [0]), ((4999, 5500), [0]), ((5500, 5499), [0])],
)
def test_a_delegate_s_operator_may_end_a_microsecond_late(
    operator: tuple[int, int], expected: list[int]
) -> None:
    rows = [("@gemm", *operator), ("@add", 5000, 5000), ("delegate", 5000, 6000)]
    assert marked(*rows, ("run", 5000, 9000)) == expected


@pytest.mark.parametrize(("end", "expected"), [(6000, []), (6001, [2])])
def test_a_call_holds_no_more_time_than_it_has(end: int, expected: list[int]) -> None:
    """But for a microsecond: its two operators take 2000 ns of 1000."""
    rows = [("@gemm", 5000, 6000), ("@add", 5000, end), ("delegate", 5000, 6000)]
    events = examine_events(dump_of([*rows, ("run", 5000, 9000)]))
    assert marks(events) == expected
    assert events.times is not None
    assert events.times.beyond.tolist() == [5000 - end, 3000]


def test_what_is_inside_a_wrong_container_is_not_wrong_itself() -> None:
    assert marked(("kernel", 300, 310), ("call", 200, 100), ("run", 100, 400)) == [1]
    # AND what is no operator is inside the execution, whatever call stands behind it
    assert marked(("noise", 50, 60), ("call", 110, 120), ("run", 100, 400)) == [0]
    assert marked(("noise", 110, 390), ("call", 110, 120), ("run", 100, 400)) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([("kernel", 100, 110), ("kernel", 110, 120), ("call", 100, 200)], []),
     ([("kernel", 100, 111), ("kernel", 110, 120), ("call", 100, 200)], [0, 1]),
     ([("call", 100, 110), ("delegate", 110, 120)], []),
     ([("call", 100, 111), ("delegate", 110, 120)], [0, 1]),
     ([("delegate", 100, 111), ("call", 110, 120), ("call", 120, 130)], [0, 1]),
     ([("@a", 100, 109), ("@b", 101, 109), ("delegate", 100, 200)], [])],
)  # fmt: skip
def test_neighbours_may_touch_and_not_overlap(rows: list[Row], expected: list[int]) -> None:
    assert marked(*rows, ("run", 100, 400)) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([("run", 0, 10), ("run", 10, 20)], []), ([("run", 0, 10), ("run", 9, 20)], [0, 1]),
     ([("init", 0, 10), ("load", 0, 10)], []), ([("init", 3, 10), ("load", 0, 12)], []),
     ([("init", 3, 10), ("load", 4, 12)], [0, 1]), ([("init", 3, 10), ("load", 0, 9)], [0, 1]),
     ([("init", 0, 10), ("load", 0, 12), ("init", 20, 30), ("load", 18, 29)], [2, 3]),
     ([("init", 20, 30), ("load", 18, 31), ("init", 40, 42), ("load", 39, 43)], []),
     ([("run", 3, 10), ("load", 0, 12)], [0, 1]), ([("init", 3, 10), ("run", 0, 12)], [0, 1]),
     ([("run", 0, 10), ("run", 30, 20), ("run", 25, 40)], [1])],
)  # fmt: skip
def test_executions_and_loads_follow_each_other(rows: list[Row], expected: list[int]) -> None:
    """A load holds its own initialisation, and nothing else holds anything."""
    events = examine_events(dump_of(*[[row] for row in rows]), clocks=Clocks())
    assert marks(events) == expected


@pytest.mark.parametrize(
    ("before", "row", "is_wrong"),
    [(Outermost(7, 0, 100, is_load=False), ("run", 100, 120), False),
     (Outermost(7, 0, 101, is_load=False), ("run", 100, 120), True),
     (Outermost(7, 100, 120, is_load=True), ("load", 100, 120), False),
     (Outermost(7, 100, 121, is_load=True), ("load", 100, 120), True),
     (Outermost(7, 100, 120, is_load=False), ("load", 100, 120), True)],
)  # fmt: skip
def test_a_piece_follows_on_the_one_before(before: Outermost, row: Row, is_wrong: bool) -> None:
    events = examine_events(dump_of([row]), clocks=Clocks(), before=before)
    assert events.is_last_before_wrong is is_wrong
    assert marks(events) == ([0] if is_wrong else [])
    assert events.last == Outermost(0, 100, 120, is_load=row[0] == "load")
    # AND a piece without executions says nothing of it
    empty = examine_events(dump_of([("noise", 5, 6)]), clocks=Clocks(), before=before)
    assert (empty.last, empty.is_last_before_wrong, marks(empty)) == (None, False, [])
    # AND nor does one of a narrow clock
    narrow = examine_events(dump_of([row]), clocks=Clocks(is_narrow=True), before=before)
    assert (narrow.last, narrow.is_last_before_wrong) == (None, False)


def test_damage_is_counted_once_across_pieces() -> None:
    pieces = [dump_of([("run", 0, 100)]), dump_of([("run", 50, 150)], first_block=1),
              dump_of([("noise", 0, 1)], first_block=2),
              dump_of([("run", 140, 200), ("run", 300, 400)], first_block=3)]  # fmt: skip
    damage = Damage()
    assert (damage.before, damage.possible.tolist(), damage.first) == (None, [], "")
    for piece in pieces:
        damage.add(piece, examine_events(piece, clocks=Clocks(), before=damage.before))
    assert damage.events == 3
    assert damage.first == "event 0 of event block 0"
    assert damage.possible.tolist() == [False, False, False, True]
    assert damage.before == Outermost(1, 300, 400, is_load=False)
    assert damage.loads == set()


def test_damage_of_loads_has_their_names() -> None:
    first, second = dump_of([("run", 0, 9), ("load", 10, 30)]), dump_of([("kernel", 5, 4), ("init", 20, 40), ("run", 50, 60)])  # fmt: skip
    damage = Damage()
    for piece in (first, second):
        damage.add(piece, examine_events(piece, clocks=Clocks(), before=damage.before))
    names = (first.names.index("Program::load_method"), second.names.index("Method::init"))
    assert damage.loads == set(names)
    assert (damage.events, damage.first) == (3, "event 1 of event block 0")
    assert damage.possible.tolist() == [True, False]


def test_a_position_counts_all_events_of_its_block() -> None:
    tables = [
        event_block(b"a", [event(profile=profile_event(b"x"))] * 3),
        event_block(b"b", [event(allocation=allocation_event(1, 2))] * 2
                    + [event(profile=profile_event(b"y"))]),
    ]  # fmt: skip
    dump = load_etdump(bytes(write_etdump(etdump(tables)).data))
    assert describe_position(dump, 3) == "event 2 of event block 1"
    assert describe_position(replace(dump, first_block=5), 2) == "event 2 of event block 5"


def test_a_wrap_of_a_narrow_clock_is_undone() -> None:
    rows = [("kernel", WRAP - 5, 3), ("call", WRAP - 10, 4), ("kernel", 6, 8), ("call", 5, 9),
            ("run", WRAP - 20, 10)]  # fmt: skip
    events = examine_events(dump_of(rows))
    assert events.signs == ClockSigns(events=5, narrow=5, wrapped=3)
    assert events.times is not None
    assert events.times.duration.tolist() == [8, 14, 2, 4, 30]
    assert events.times.start.tolist() == [WRAP - 5, WRAP - 10, 6, 5, WRAP - 20]
    assert marks(events) == []
    # AND neighbours are held against each other on one clock
    rows[2], rows[3] = ("kernel", 3, 8), ("call", 3, 9)
    assert marked(*rows) == [1, 3]


@pytest.mark.parametrize(
    ("row", "narrow", "wrapped"),
    [(("noise", 5, 5), 1, 0), (("noise", 6, 5), 1, 1), (("noise", WRAP - 1, 5), 1, 1),
     (("noise", WRAP, 5), 1, 0), (("noise", 5, WRAP - 1), 1, 0), (("noise", 5, WRAP), 0, 0),
     (("3@foreign", 6, 5), 1, 0)],
)  # fmt: skip
def test_signs_of_a_narrow_clock_fit_in_its_bits(row: Row, narrow: int, wrapped: int) -> None:
    answer = examine_events(dump_of([row]), {3: None}, clocks=Clocks()).signs
    assert (answer.narrow, answer.wrapped) == (narrow, wrapped)


def test_no_stamp_of_a_narrow_clock_is_wider() -> None:
    rows = [("call", WRAP - 9, WRAP - 1), ("noise", 1, WRAP), ("noise", WRAP, WRAP + 1)]
    answer = marked(*rows, ("run", WRAP - 10, 5), clocks=Clocks(is_narrow=True))
    assert answer == [1, 2]
    # AND no clock at all reaches the highest bit
    high = [("noise", 0, 2**63 - 1), ("noise", 2**63, 2**63 + 1), ("noise", 1, 2**63)]
    assert marked(*high, clocks=Clocks()) == [1, 2]


def test_a_delegate_s_unit_makes_ns_of_its_ticks() -> None:
    rows = [("3@gemm", 2, 7), ("4@add", 102, 107), ("delegate", 100, 200), ("3@x", 1, 2),
            ("delegate", 300, 400), ("run", 100, 500)]  # fmt: skip
    events = examine_events(dump_of(rows), {3: 8.0})
    assert events.times is not None
    assert events.times.duration.tolist() == [40, 5, 100, 8, 100, 400]
    assert events.times.beyond.tolist() == [55, 92, 200]
    assert (marks(events), events.signs.outside) == ([], 0)
    unknown = examine_events(dump_of(rows), {3: None})
    assert unknown.times is not None
    assert unknown.times.beyond.tolist() == [95, 100, 200]
    assert (marks(unknown), unknown.signs.delegated) == ([], 1)
    assert marks(examine_events(dump_of(rows), {3: 300.0})) == [2]  # 1500 ns of 100


def test_ticks_of_another_clock_are_made_ns() -> None:
    dump = replace(dump_of([("call", 10, 13), ("run", 9, 20)]), ns_per_tick=2.5)
    events = examine_events(dump)
    assert events.times is not None
    assert events.times.start.tolist() == [25, 22]  # 22.5 goes to the even one
    assert events.times.end.tolist() == [32, 50]
    assert events.times.duration.tolist() == [7, 28]
    assert events.times.start.dtype == np.uint64


def test_delegates_apart_are_judged_by_their_sums_alone() -> None:
    rows: list[Row] = [("@a", 1, 3), ("@b", 3, 6), ("@c", 100, 102), ("delegate", 100, 200)]
    events = examine_events(dump_of([*rows, ("run", 100, 500)]))
    assert (events.signs.delegated, events.signs.outside, marks(events)) == (3, 2, [])
    rows[1] = ("@b", 102, 104)  # one of three is wrong by itself
    assert marked(*rows, ("run", 100, 500)) == [0]


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [("a", True), ("a/b..c", True), ("a/../b", False), ("..", False), ("/a", False),
     ("a\\b", False), ("a\tb", False)],
)  # fmt: skip
def test_names_of_parts_stay_where_they_are(name: str, is_allowed: bool) -> None:
    member = zipfile.ZipInfo("a")
    member.filename = name
    assert (archive._find_problem(member) is None) is is_allowed


def test_parts_are_files_that_are_stored_or_deflated() -> None:
    member = zipfile.ZipInfo("a")
    for mode, is_file in ((0, True), (0o644, True), (stat.S_IFREG | 0o600, True),
                          (stat.S_IFLNK, False), (stat.S_IFDIR, False)):  # fmt: skip
        member.external_attr = mode << 16
        assert (archive._find_problem(member) is None) is is_file
    member.external_attr = 0
    for kind, is_used in ((0, True), (8, True), (12, False), (14, False)):
        member.compress_type = kind
        assert (archive._find_problem(member) is None) is is_used


@pytest.mark.parametrize(
    ("before", "size", "packed", "reason"),
    [(64 * MIB, 64 * MIB, MIB, None), (0, 64 * MIB + 1, MIB, "a graph may have 67108864"),
     (64 * MIB + 1, 64 * MIB, MIB, "all of them 134217728"), (0, 601, 3, "more than 200 times"),
     (0, 200 * 400, 400, None), (0, 201, 0, "more than 200 times")],
)  # fmt: skip
def test_a_part_is_no_larger_than_a_graph(
    tmp_path: Path, before: int, size: int, packed: int, reason: str | None
) -> None:
    """64 MiB of one, 128 MiB of all, and two hundred times what is packed."""
    path = write_etrecord(tmp_path / "x.etrecord", make_program())
    with archive.open_parts(path) as parts:
        member = parts._archive.getinfo("debug_handle_map")
        parts._read_bytes, member.file_size, member.compress_size = before, size, packed
        # The file does not have so much: newer zipfiles see that before they read.
        errors = InputFileError if reason else (EOFError, zipfile.BadZipFile)
        with pytest.raises(errors, match=reason or "^$|Overlapped entries"):
            parts._read("debug_handle_map")


def test_values_of_all_parts_are_counted_by_their_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"a": b'[{"x": 1}, 2]', "b": b"[1]"}
    path = write_etrecord(tmp_path / "x.etrecord", make_program(), **parts)
    for most, is_read in ((4, True), (3, False)):
        monkeypatch.setattr(archive, "MAX_VALUES", most)
        with archive.open_parts(path) as opened:
            assert opened.read_json("a") == [{"x": 1}, 2]
            if is_read:
                assert opened.read_json("b") == [1]
                continue
            with pytest.raises(InputFileError, match="with b it has more than 3 values"):
                opened.read_json("b")


def test_parts_that_are_no_graphs_are_left_alone(tmp_path: Path) -> None:
    others = dict.fromkeys(
        ("delegate_map", "instruction_id_to_num_outs_map", "reference_outputs",
         "representative_inputs", "export_graph_id", "g_state_dict", "g_constants",
         "g_example_inputs", "exported_program"), b"",
    )  # fmt: skip
    path = write_etrecord(tmp_path / "x.etrecord", make_program(), **others)
    with archive.open_parts(path) as parts:
        names = ["edge_dialect_exported_program/forward", "exported_program"]
        assert parts.graph_names() == names
        with pytest.raises(InputFileError, match="it has no part gone"):
            parts.read_json("gone")


def test_a_directory_of_a_mebibyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(2**20 + 5))
    with archive._ArchiveFile(str(path)) as file:
        assert len(file.read(2**20)) == 2**20
        assert len(file.read()) == 5
        file.seek(0)
        assert len(file.read(-1)) == len(file.read(0)) + 2**20
        with pytest.raises(zipfile.BadZipFile, match="1048577 bytes, more than 1048576"):
            file.read(2**20 + 1)


def value_of(*sizes: int, dtype: int = FLOAT) -> graph._Value:
    return graph._Value(dtype=dtype, sizes=tuple({"as_int": size} for size in sizes))


@pytest.mark.parametrize(
    ("sizes", "is_tensor"),
    [((2**24, 2**24), True), ((2**24, 2**24 + 1), False), ((0, 5), True), ((-1,), False),
     ((1,) * 64, True), ((1,) * 65, False), ((), True), ((0, 2**49), False)],
)  # fmt: skip
def test_a_tensor_has_sizes_that_can_be(sizes: tuple[int, ...], is_tensor: bool) -> None:
    if is_tensor:
        tensor = graph._make_value(value_of(*sizes))
        assert tensor is not None
        assert tuple(tensor.shape) == sizes
        return
    with pytest.raises(graph.GraphError, match="a tensor of"):
        graph._make_value(value_of(*sizes))


def test_a_size_is_its_number_or_the_hint_beside_its_expression() -> None:
    hinted: dict[str, Any] = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 5}}}
    unknown: list[dict[str, Any]] = [{"as_expr": {"hint": None}}, {"as_expr": 7}, {"as_int": True}]
    sizes = [{"as_int": 3}, hinted, *unknown, {}]
    assert [graph._size(size) for size in sizes] == [3, 5, None, None, None, None]
    assert graph._make_value(None) is None
    assert graph._make_value(graph._Value(dtype=FLOAT, sizes=({"as_int": 3}, {}))) is None


@pytest.mark.parametrize(
    ("union", "names"),
    [({"as_tensor": {"name": "a"}}, ["a"]), ({"as_sym_int": {"as_name": "s"}}, ["s"]),
     ({"as_sym_int": {"as_int": 3}}, []),
     ({"as_tensors": [{"name": "a"}, {"name": "b"}]}, ["a", "b"]),
     ({"as_sym_ints": [{"as_name": "s"}, {"as_int": 1}]}, ["s"]),
     ({"as_optional_tensors": [{"as_tensor": {"name": "a"}}, {"as_none": True}, 4]}, ["a"]),
     ({"as_custom_obj": {"name": "o"}}, ["o"]), ({"as_tensors": 5}, []), ({"as_int": 5}, []),
     ({}, [])],
)  # fmt: skip
def test_an_argument_names_the_values_that_it_reads(
    union: dict[str, Any], names: list[str]
) -> None:
    assert list(graph._names(union)) == names


@pytest.mark.parametrize("length", [500, 501])
def test_a_name_has_five_hundred_characters_at_most(length: int) -> None:
    document = make_program()
    node = document["graph_module"]["graph"]["nodes"][0]
    node["target"] = "o" * length
    if length > 500:
        with pytest.raises(graph.GraphError, match=f"^'{'o' * 60}' is not an operator's name"):
            graph.read_graph(document)
        return
    assert graph.read_graph(document).nodes[1].target == "o" * length
    name = "n" * length
    node["outputs"][0]["as_tensor"]["name"] = name
    assert graph.read_graph(document).nodes[1].name == name
    node["outputs"][0]["as_tensor"]["name"] = name + "n"
    with pytest.raises(graph.GraphError, match=f"^'{'n' * 60}' is not a node's name"):
        graph.read_graph(document)


def test_each_output_of_a_call_is_a_node_that_reads_it() -> None:
    document = make_program()
    node = document["graph_module"]["graph"]["nodes"][0]
    node["inputs"] = [
        {"arg": {"as_tensor": {"name": "x"}}},
        {"arg": {"as_int": 2}},
        {"arg": {"as_tensors": [{"name": "x"}, {"name": "x"}]}},
    ]
    node["outputs"] = [{"as_tensor": {"name": "one"}}, {"as_tensor": {"name": "two"}}]
    source, call, one, two = graph.read_graph(document).nodes
    assert (source.name, call.name) == ("x", "aten_add_tensor")
    assert (one.name, two.name) == ("one", "two")
    assert (source.op, source.target, source.users) == ("placeholder", "x", [call])
    assert (call.op, call.target, call.users) == ("call_function", "aten.add.Tensor", [one, two])
    assert call.args == [source, 2, [{"name": "x"}, {"name": "x"}]]
    assert call.all_input_nodes == [source]
    assert (one.args, two.args) == ([call, 0], [call, 1])
    assert (one.target, one.all_input_nodes) == ("getitem", [call])
    assert (two.meta["debug_handle"], two.meta["val"]) == (1, None)
    assert two.meta["nn_module_stack"] == {"L__self__": ("", "M"), "L__self___a": ("a", "m.Add")}


@pytest.mark.parametrize(
    ("text", "handle"),
    [("12", 12), ("-1", -1), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("1.0", None), ("", None)],
)
def test_a_debug_handle_is_a_whole_number(text: str, handle: int | None) -> None:
    answer = graph._read_metadata({"debug_handle": text, "stack_trace": "File"})
    assert answer == {"stack_trace": "File", "debug_handle": handle, "nn_module_stack": {}}
    assert graph._read_metadata({})["debug_handle"] is None


def test_handles_of_an_instruction_are_a_list() -> None:
    answer = graph.read_handles({"forward": {"0": 5, "1": [1, 2], "2": None, "3": 0}})
    assert answer == {"forward": {0: [5], 1: [1, 2], 2: [], 3: [0]}}


@pytest.mark.parametrize("length", [60, 61])
def test_an_expression_is_told_by_its_first_sixty_characters(length: int) -> None:
    expression = "f(" + "1" * (length - 3) + ")"
    shown = expression if length == 60 else expression[:60] + "…"
    with pytest.raises(graph.GraphError) as caught:
        graph.check_expressions({"expr_str": expression})
    assert f"the expression {shown!r} is refused" in str(caught.value)


def test_files_of_a_program_are_found_by_its_name(tmp_path: Path) -> None:
    pte, short, long = (tmp_path / name for name in ("x.pte", "x.etrecord", "x.pte.etrecord"))
    assert program.find_etrecord(pte) is None
    short.touch()
    assert program.find_etrecord(pte) == short
    assert (program.find_program(short), program.find_program(long)) == (None, None)
    long.touch()
    assert program.find_etrecord(pte) == long
    pte.touch()
    assert (program.find_program(short), program.find_program(long)) == (pte, pte)
    (tmp_path / "y").touch()
    assert program.find_program(tmp_path / "y.etrecord") is None
    assert not program.is_own(pte, short)


def test_nodes_of_a_handle_are_taken_in_order_and_the_last_again() -> None:
    nodes: dict[int | None, list[Any]] = {4: ["a", "b"]}
    assert [program._take(nodes, handle) for handle in (4, 4, 4, 5)] == ["a", "b", "b", None]


@pytest.mark.parametrize(
    ("part", "method"),
    [
        ("edge_dialect_exported_program/encode", "encode"),
        ("edge_dialect_exported_program", "forward"),
    ],
)
def test_a_graph_is_of_the_method_that_its_part_names(part: str, method: str) -> None:
    assert program._method_of(part) == method


def test_a_kernel_has_the_work_of_its_own_operator() -> None:
    operators = [SimpleNamespace(name="aten::mul", overload="Scalar_out")]
    plan = SimpleNamespace(operators=operators)
    assert program._kernel_name(plan, SimpleNamespace(op_index=0)) == "mul.Scalar_out"
    assert program._kernel_name(plan, SimpleNamespace(move_from=0)) == ""
    for operator, macs in (("edge.aten.mul.Scalar", 8), ("aten::mul.Scalar", 8),
                           ("aten.mul.Scalar", 8), ("mul.add.Scalar", None)):  # fmt: skip
        row = GraphOperator(name="m", operator=operator, macs=8)
        answer = program._as_kernel(row, "mul.Scalar_out", 3)
        assert (answer.operator, answer.macs, answer.instruction) == ("mul.Scalar_out", macs, 3)


@pytest.mark.parametrize(
    ("handles", "node_handles", "problem"),
    [({0: [1], 2: [5, 6]}, (5, None, 2**16 - 1), ""),
     ({0: [1], 3: [5]}, (), "it has 4 instructions or more, the program 3"),
     ({0: [1], 2: [5]}, (5, 6), "lowered_module_0 of the program computes operators"),
     ({}, (1,), "lowered_module_0 of the program computes operators"), ({}, (), "")],
)  # fmt: skip
def test_a_record_belongs_to_the_program_whose_handles_it_has(
    tmp_path: Path,
    handles: dict[int, list[int]],
    node_handles: tuple[int | None, ...],
    problem: str,
) -> None:
    nodes = tuple(DelegateNode(kind="add", debug_handle=handle) for handle in node_handles)
    delegate = Delegate(name="lowered_module_0", backend="b", instruction=2, nodes=nodes)
    report = MethodReport(operators=(), delegates=(delegate,))
    plan = SimpleNamespace(name="forward", chains=[SimpleNamespace(instructions=[None] * 3)])
    record = program.EtRecord({}, {"forward": handles})
    files = (tmp_path / "x.pte", tmp_path / "x.etrecord")
    if not problem:
        program._check_belongs(plan, report, record, *files)
        return
    with pytest.raises(InputFileError, match=problem):
        program._check_belongs(plan, report, record, *files)


def test_a_record_alone_tells_operators_and_their_instructions(tmp_path: Path) -> None:
    handles = b'{"forward": {"0": [1], "1": [1], "4": []}}'
    path = write_etrecord(tmp_path / "net.etrecord", make_program(), debug_handle_map=handles)
    report = program.describe_etrecord(path, {4: "B", 1: "A", 9: "C"})
    assert report.model == "net"
    method = report.methods["forward"]
    assert [(row.instruction, row.delegate, row.reason) for row in method.operators] == [
        (0, None, "not recorded: an ETRecord has no reasons of the partitioner"), (None, 0, None),
    ]  # fmt: skip
    assert [(call.name, call.backend, call.instruction) for call in method.delegates] == [
        ("lowered_module_0", "A", 1), ("lowered_module_1", "B", 4),
    ]  # fmt: skip
    assert Counter(row.operator for row in method.operators) == {"add.Tensor": 2}
