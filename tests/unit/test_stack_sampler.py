"""What is seen of a running export, and that nothing runs when nobody asks."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import etprof.export
from etprof.base.errors import ExportError
from etprof.export.exporter import export_model
from etprof.export.options import ExportOptions
from etprof.export.request import ExportRequest
from etprof.export.stack_sampler import StackSampler, name_step, next_look_s
from etprof.export.stages import StageClock, Step
from etprof.registry import FOLDER_PACKAGE

if TYPE_CHECKING:
    from pathlib import Path


class PassBase:
    """Has the name of PyTorch's, so that its call is taken for a pass's."""

    def __call__(self, clock: StageClock) -> None:
        wait_for_looks(clock)


class FusePass(PassBase):
    """Inherits its call."""


def wait_for_looks(clock: StageClock) -> None:
    """Computes until three more samples are there; gives up after a minute."""
    enough = len(clock.samples) + 3
    give_up_ns = clock.elapsed_ns() + 60 * 10**9
    while len(clock.samples) < enough:
        assert clock.elapsed_ns() < give_up_ns, "nobody looks"


def is_watched() -> bool:
    return any(thread.name == "etprof-sampler" for thread in threading.enumerate())


def test_the_steps_of_the_thread_that_entered_it_are_seen() -> None:
    clock = StageClock()
    with StackSampler(clock):
        FusePass()(clock)
    assert not is_watched()
    # THEN a pass has its class's name, and what called the sampler is no part of it
    fuse, wait = Step("FusePass", __name__), Step("wait_for_looks", __name__)
    # What waits may itself be asking the clock in every sample.
    assert (fuse, wait) in {each.steps[:2] for each in clock.samples}
    assert {each.steps[0] for each in clock.samples if each.steps} == {fuse}
    times = [each.time_ns for each in clock.samples]
    assert times == sorted(times)
    assert times[-1] <= clock.elapsed_ns()


def test_endless_recursion_is_cut() -> None:
    clock = StageClock()

    def call() -> None:
        recurse(clock, 100)

    with StackSampler(clock):
        call()
    assert max(len(each.steps) for each in clock.samples) == 30
    assert {each.steps[0].name for each in clock.samples if each.steps} == {"recurse"}


def recurse(clock: StageClock, times: int) -> None:
    if times:
        recurse(clock, times - 1)
    else:
        wait_for_looks(clock)


def test_a_long_export_is_looked_at_less_often() -> None:
    assert [next_look_s(seconds * 10**9) for seconds in (0, 100, 200)] == [0.005, 0.005, 0.01]
    # THEN an hour has five times as many looks as the first 100 s, not 36 times
    elapsed_ns, looks = 0, 0
    while elapsed_ns < 3600 * 10**9:
        elapsed_ns += round(next_look_s(elapsed_ns) * 1e9)
        looks += 1
    assert 90_000 < looks < 100_000


@pytest.mark.parametrize(
    ("module", "function", "step"),
    [
        ("executorch.exir.program._program", "to_edge", "to_edge"),
        ("torch.fx.passes.infra.pass_manager", "PassManager.__call__", "PassManager.__call__"),
        ("torch._dynamo.convert_frame", "<module>", "import torch._dynamo.convert_frame"),
        (f"{FOLDER_PACKAGE}2f686f6d65.net", "Net.forward", "Net.forward"),
        ("torch._dynamo.convert_frame", "compile_frame", None),
        ("torch.fx.interpreter", "Interpreter.run", None),
        ("importlib._bootstrap", "_find_and_load", None),
        ("collections.abc", "<module>", None),
        ("executorch.exir.program._program", "et_logger.<locals>.wrapper", None),
        ("libs.own", "<lambda>", None),
    ],
)
def test_only_what_tells_a_reader_something_is_a_step(
    module: str, function: str, step: str | None
) -> None:
    found = name_step(module, function)
    assert (found and found.name) == step
    assert found is None or FOLDER_PACKAGE not in found.module


@pytest.mark.parametrize("trace", [False, True])
def test_an_export_is_watched_only_for_its_trace(
    trace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = []

    class Session:
        def __init__(self, *_: object) -> None: ...

        def run(self) -> None:
            watched.append(is_watched())
            msg = "the model cannot be lowered"
            raise ExportError(msg)

    monkeypatch.setattr(
        etprof.export, "session", SimpleNamespace(ExportSession=Session), raising=False
    )
    request = ExportRequest("toy_cnn", outdir=tmp_path, options=ExportOptions(trace=trace))
    with pytest.raises(ExportError):
        export_model(request)
    # THEN it is watched while it runs, if at all, and not after it has failed
    assert watched == [trace]
    assert not is_watched()
