"""What is drawn of an export: its time, split into stages and steps, and its memory plan."""

from __future__ import annotations

import re
from collections import Counter

from etprof.export import flame_graph
from etprof.export.chrome_trace import draw_memory, draw_stages
from etprof.export.memory_plan import PlannedTensor
from etprof.export.stages import StackSample, StageTime, Step
from etprof.export.time_split import Share, slice_time, sum_shares

LOWER, PARTITION, PASSES, FUSE = (
    Step(name, "libs.lowering") for name in ("lower", "partition", "passes", "FusePass")
)
STAGES = [StageTime("load", 0, 100), StageTime("lower", 100, 1000)]
SAMPLES = [
    StackSample(50, ()),
    StackSample(300, (LOWER, PARTITION)),
    StackSample(500, (LOWER, PASSES, FUSE)),
    StackSample(600, (LOWER, PASSES)),
    StackSample(900, (LOWER, PASSES, FUSE)),
    StackSample(1000, (LOWER, PARTITION)),
]
"""Each stands for the time since the one before."""


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


def test_a_step_lasts_as_long_as_every_look_in_a_row_finds_it() -> None:
    found = [
        ("/".join(step.name for step in each.path), each.start_ns, each.duration_ns)
        for each in slice_time(STAGES, SAMPLES)
    ]
    assert sorted(found, key=lambda each: (each[1], -each[2], each[0])) == [
        ("load", 0, 100),
        ("lower", 100, 1000),
        ("lower/lower", 100, 900),
        ("lower/lower/partition", 100, 200),
        ("lower/lower/passes", 300, 600),
        ("lower/lower/passes/FusePass", 300, 200),
        ("lower/lower/passes/FusePass", 600, 300),
        ("lower/lower/partition", 900, 100),
    ]


def test_shares_add_up_and_keep_the_order_of_time() -> None:
    export = sum_shares(list(slice_time(STAGES, SAMPLES)))
    # THEN the stages are all of the export, whatever was seen in them
    assert (export.duration_ns, export.own_ns()) == (1100, 0)
    assert [step.name for step in export.parts] == ["load", "lower"]
    lower = export.parts[Step("lower", "")]
    assert lower.own_ns() == 100  # after the last look
    # AND a step that came twice is summed, and stands where it came first
    inner = lower.parts[LOWER]
    assert [(step, part.duration_ns) for step, part in inner.parts.items()] == [
        (PARTITION, 300),
        (PASSES, 600),
    ]
    assert inner.parts[PASSES].parts[FUSE].duration_ns == 500


def test_slices_are_in_microseconds_and_tell_the_module() -> None:
    stage = StageTime("lower", 2_000, 5_000_000)
    samples = [StackSample(1_002_000, (LOWER,)), StackSample(1_003_000, (PARTITION,))]
    events = draw_stages(list(slice_time([stage], samples)))["traceEvents"][1:]
    # THEN what is shorter than a 2000th of the whole is left out
    assert [(each["name"], each["ts"], each["dur"], each["args"]) for each in events] == [
        ("lower", 2.0, 5000.0, {}),
        ("lower", 2.0, 1000.0, {"module": "libs.lowering"}),
    ]


def test_what_cannot_be_seen_is_not_drawn() -> None:
    # GIVEN 500 passes of a 1000th of the time each, and 5000 of a 10000th, all of them 5 calls deep
    deep = tuple(Step(f"call_{depth}", "libs.calls") for depth in range(5))
    passes = [number // 10 for number in range(5000)] + list(range(5000, 10_000))
    samples = [
        StackSample(1_000 * look, (Step(f"Pass{number}", "libs.passes"), *deep))
        for look, number in enumerate(passes, start=1)
    ]
    slices = list(slice_time([StageTime("lower", 0, 10_000_000)], samples))
    # THEN the drawings have the former alone
    events = draw_stages(slices)["traceEvents"]
    assert len(events) == 2 + 6 * 500
    page = flame_graph.render("m.pte", sum_shares(slices))
    rows = Counter(re.findall(r'class="row\d" style="top: ([\d.]+)rem', page))
    assert list(rows.values()) == [1, 1, *[500] * 6]
    # AND a box takes less than 300 bytes
    assert len(page) < 300 * sum(rows.values()) + 8192


def test_a_hostile_name_is_text() -> None:
    attack = Step('"><script>alert(1)</script>', "<b>")
    stages = Share(Step("export", ""), 10, {attack: Share(attack, 10)})
    page = flame_graph.render("<i>.pte", stages)
    assert page.count("<script>") == 1  # ours
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_page_lists_who_has_most_time_of_its_own() -> None:
    page = flame_graph.render("m.pte", sum_shares(list(slice_time(STAGES, SAMPLES))))
    listed = re.findall(r'<th scope="row">(.*?)</th>.*?figure">(.*?)</td>.*?">(.*?)</td>', page)
    assert listed == [
        ("FusePass", "500 ns", "45.5 %"),
        ("partition", "300 ns", "27.3 %"),
        ("load", "100 ns", "9.1 %"),
        ("lower", "100 ns", "9.1 %"),
        ("passes", "100 ns", "9.1 %"),
    ]
    # AND each box stands where what it is part of has room for it
    places = re.findall(
        r'left: (.*?)%; width: (.*?)%" title=".*?">(.*?)<', page.partition("<h2>")[0]
    )
    assert places == [
        ("0.0", "100.0", "export"),
        ("0.0", "9.091", "load"),
        ("9.091", "90.909", "lower"),
        ("9.091", "81.818", "lower"),
        ("9.091", "27.273", "partition"),
        ("36.364", "54.545", "passes"),
        ("36.364", "45.455", "FusePass"),
    ]
