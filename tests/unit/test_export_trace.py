"""What is drawn of an export: its time, split into stages and calls, and its memory plan."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

import pytest
from pyinstrument.session import Session

import etprof.export
from etprof.base.errors import ExportError
from etprof.export.exporter import export_model
from etprof.export.memory_plan import draw_memory
from etprof.export.request import ExportOptions, ExportRequest
from etprof.export.stages import StageClock, draw_flames, draw_stages, name_call
from etprof.run.delegation import PlannedTensor
from etprof.run.program import StageTime

HOLDER = "run\0/libs/session.py\x001"
"""The function that holds a stage; its time is the stage's."""
LOWER, PARTITION, PASSES, FUSE = (
    f"{name}\0/libs/lowering.py\x001" for name in ("lower", "partition", "passes", "fuse")
)


def seen(*looks: tuple[float, Sequence[str]]) -> Session:
    """What pyinstrument keeps of a stage; each look stands for the time since the one before."""
    return Session(
        frame_records=[([HOLDER, *stack], seconds) for seconds, stack in looks],
        start_time=0.0,
        duration=1.0,
        min_interval=0.005,
        max_interval=0.005,
        sample_count=len(looks),
        start_call_stack=[HOLDER],
        target_description="",
        cpu_time=1.0,
        sys_path=[],
        sys_prefixes=[],
    )


def stage(name: str, start_ns: int, duration_ns: int) -> StageTime:
    return StageTime(name=name, start_ns=start_ns, duration_ns=duration_ns)


def clock_of(*stages: tuple[StageTime, Session | None]) -> StageClock:
    clock = StageClock()
    clock.times, clock.sessions = map(list, zip(*stages, strict=True))
    return clock


CLOCK = clock_of(
    (stage("load", 0, 100_000_000), seen((0.05, []))),
    (
        stage("lower", 100_000_000, 1_000_000_000),
        seen(
            (0.2, (LOWER, PARTITION)),
            (0.2, (LOWER, PASSES, FUSE)),
            (0.1, (LOWER, PASSES)),
            (0.3, (LOWER, PASSES, FUSE)),
            (0.1, (LOWER, PARTITION)),
        ),
    ),
)


def tensor(node: str, offset: int, size: int, first: int, last: int) -> PlannedTensor:
    return PlannedTensor(
        node=node,
        module_path=f"m.{node}",
        arena=1,
        offset_bytes=offset,
        size_bytes=size,
        first_use=first,
        last_use=last,
    )


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


def test_a_call_lasts_as_long_as_every_look_in_a_row_finds_it() -> None:
    events = draw_stages(CLOCK)["traceEvents"][1:]
    # THEN stages are as the clock says, and the calls in them one after the other, in microseconds
    found = [(each["name"], round(each["ts"]), round(each["dur"])) for each in events]
    assert found == [
        ("load", 0, 100_000),
        ("lower", 100_000, 1_000_000),
        ("lower", 100_000, 900_000),
        ("partition", 100_000, 200_000),
        ("passes", 300_000, 600_000),
        ("fuse", 300_000, 200_000),
        ("fuse", 600_000, 300_000),
        ("partition", 900_000, 100_000),
    ]
    assert [each["args"] for each in events[:3]] == [{}, {}, {"file": "/libs/lowering.py"}]


def tree_of(page: str) -> dict[str, Any]:
    """The data of the page, as its script reads them."""
    match = re.search(r'getElementById\("app"\), (.*?)\)</script>', page)
    assert match is not None
    tree: dict[str, Any] = json.loads(match.group(1))["frame_tree"]
    return tree


def shares_of(frame: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, float]:
    """The time of each call by the names around it."""
    path = (*path, frame["identifier"].partition("\0")[0])
    found = {"/".join(path): round(frame["time"], 6)}
    for each in frame["children"]:
        if each["identifier"] != "[self]":
            found |= shares_of(each, path)
    return found


def test_the_flame_graph_sums_the_calls_of_a_place() -> None:
    assert shares_of(tree_of(draw_flames("m.pte", CLOCK))) == {
        "export": 1.1,
        "export/lower": 1.0,
        "export/lower/lower": 0.9,
        "export/lower/lower/passes": 0.6,
        "export/lower/lower/passes/fuse": 0.5,
        "export/lower/lower/partition": 0.3,
        "export/load": 0.1,
    }


@pytest.mark.slow
def test_what_cannot_be_seen_is_not_drawn() -> None:
    # GIVEN 500 calls of a 1000th of the time each, and 5000 of a 10000th
    calls = [number // 10 for number in range(5000)] + list(range(5000, 10_000))
    looks = [(0.001, [f"call{number}\0/libs/own.py\x001"]) for number in calls]
    clock = clock_of((stage("lower", 0, 10_000_000_000), seen(*looks)))
    # THEN the drawings have the former alone
    assert len(draw_stages(clock)["traceEvents"]) == 2 + 500
    assert len(shares_of(tree_of(draw_flames("m.pte", clock)))) == 2 + 500


def test_a_hostile_name_is_text_and_the_page_asks_nobody() -> None:
    attack = "</script><script>alert(1)</script>"
    clock = clock_of((stage("lower", 0, 10), seen((1e-8, [f"x\0/{attack}\udc80.py\x001"]))))
    page = draw_flames("<i>.pte", clock)
    page.encode()  # as it is written
    assert "alert(1)<" not in page
    assert "<i>" not in page
    assert page.count("<script>") == 2  # the library's, and the data
    # THEN the policy names these two, and nothing may be fetched: the library asks for a font
    policy = re.search(r'Security-Policy" content="(.*?)"', page)
    assert policy is not None
    assert policy.group(1).startswith("default-src 'none'")
    assert policy.group(1).count("'sha256-") == 2
    assert "http" not in policy.group(1)


@pytest.mark.parametrize(
    ("function", "file", "class_name", "name"),
    [
        ("to_edge", "/x/site-packages/executorch/exir/program/_program.py", None, "to_edge"),
        ("__call__", "/x/torch/fx/passes/infra/pass_base.py", "FusePass", "FusePass.__call__"),
        ("<module>", "/x/torch/_dynamo/convert_frame.py", None, "import convert_frame"),
        ("forward", "/home/net.py", "Net", "Net.forward"),
        ("compile_frame", "/x/torch/_dynamo/convert_frame.py", None, None),
        ("run", "/x/torch/fx/interpreter.py", "Interpreter", None),
        ("_find_and_load", "<frozen importlib._bootstrap>", None, None),
        ("<module>", json.__file__, None, None),
        ("<lambda>", "/libs/own.py", None, None),
    ],
)
def test_only_what_tells_a_reader_something_is_drawn(
    function: str, file: str, class_name: str | None, name: str | None
) -> None:
    assert name_call(function, file, class_name) == name


@pytest.mark.parametrize("trace", [False, True])
def test_an_export_is_watched_only_for_its_trace(
    trace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = []

    class ExportSession:
        def __init__(self, _request: object, _files: object, clock: StageClock) -> None:
            self.clock = clock

        def run(self) -> None:
            with self.clock.stage("lower"):
                watched.append(sys.getprofile() is not None)
                msg = "the model cannot be lowered"
                raise ExportError(msg)

    session = SimpleNamespace(ExportSession=ExportSession)
    monkeypatch.setattr(etprof.export, "session", session, raising=False)
    before = sys.getprofile()
    request = ExportRequest("toy_cnn", outdir=tmp_path, options=ExportOptions(trace=trace))
    with pytest.raises(ExportError):
        export_model(request)
    # THEN it is watched while it runs, if at all, and not after it has failed
    assert watched == [trace or before is not None]
    assert sys.getprofile() is before


def test_what_runs_in_a_stage_is_seen() -> None:
    clock = StageClock(is_tracing=True)
    with clock.stage("lower"):
        wait_for_looks()
    (session,) = clock.sessions
    assert session is not None
    # THEN a frame's text is kept once, however often it is seen
    texts = [text for stack, _ in session.frame_records for text in stack]
    assert len({id(text) for text in texts}) == len(set(texts)) < len(texts)
    names = [each["name"] for each in draw_stages(clock)["traceEvents"]]
    assert names[1:3] == ["lower", "wait_for_looks"]


def wait_for_looks() -> None:
    """Computes for twenty looks; the profiler has its turn at calls."""
    end_s = process_time() + 0.1
    while process_time() < end_s:
        pass
