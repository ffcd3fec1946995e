"""Further single changes of a line that went unnoticed: see test_drawn_changes.py."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import executorch.version
import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from etprof.analysis.findings import coverage
from etprof.analysis.findings.finding import Thresholds
from etprof.backends.registry import BACKENDS
from etprof.base import process as process_module
from etprof.base.errors import ExportError
from etprof.export import upstream
from etprof.export.changes.embeddings import quantize_embeddings
from etprof.export.request import ExportRequest
from etprof.history.columns import Moment
from etprof.importing import clock
from etprof.model_registry.eager_model import ExportMethod
from etprof.model_registry.registry import ModelSource
from etprof.numerics import taps
from etprof.statistics.device_noise import DeviceNoise
from etprof.statistics.summary import _lasting_states
from etprof.targets import device_lock
from etprof.targets.android.target import translate
from etprof.targets.device_lock import FOLDER_VARIABLE, Holder, MeasuredDevice
from etprof.targets.request import RunnerRequest
from etprof.views import charts, trace
from tests.known_runs import analyze, on_off_run

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_untimed_events_follow_each_other_and_calls_hold_what_is_before_them() -> None:
    labels = ["a", "b", "DELEGATE_CALL", "c", "OPERATOR_CALL", "Method::execute"]
    events = [
        trace._TraceEvent(name, name, BACKENDS[0], 7, 7, is_synthetic=False) for name in labels
    ]
    step = trace._STEP_NS
    ends = [
        (event.start_ns, event.start_ns + event.duration_ns) for event in trace._in_order(events)
    ]
    assert ends == [
        (0, step), (step, 2 * step), (0, 3 * step), (3 * step, 4 * step), (3 * step, 5 * step),
        (0, 6 * step),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("delegated", "synthetic", "is_synthetic"),
    [(True, (3,), True), (True, (), False), (False, (3,), False)],
)
def test_starts_are_made_up_inside_such_delegates_alone(
    delegated: bool, synthetic: tuple[int, ...], is_synthetic: bool
) -> None:
    columns = [np.array([value]) for value in ((-1, 0, -1) if delegated else (0, -1, -1))]
    profile = SimpleNamespace(naming=columns, instruction_id=np.array([3]))
    piece: Any = SimpleNamespace(
        dump=SimpleNamespace(profile=profile), events=SimpleNamespace(times=None)
    )
    delegates: Any = SimpleNamespace(synthetic=synthetic, backend=lambda _: BACKENDS[0])
    assert trace._event(piece, 0, delegates, ("Conv", ""), {}).is_synthetic is is_synthetic


def test_rows_of_a_table_are_a_whole_number_of_bytes() -> None:
    module = torch.nn.ModuleDict(
        {"wide": torch.nn.Embedding(4, 32), "odd": torch.nn.Embedding(4, 7)}
    )
    method = ExportMethod(module, (torch.zeros(1),))
    with pytest.raises(ExportError, match="rows of odd have 7 values, not a multiple of 2"):
        quantize_embeddings([method], "int4", [])
    whole = ExportMethod(torch.nn.ModuleDict({"wide": module["wide"]}), (torch.zeros(1),))
    assert quantize_embeddings([whole], "int4", []) == ("wide",)


def test_moments_are_of_years_from_1970_to_9000() -> None:
    moment = TypeAdapter(Moment)
    for year in ("1970", "9000"):
        assert str(moment.validate_python(f"{year}-01-01T00:00:00Z").year) == year
    for year in ("1969", "9001"):
        with pytest.raises(ValidationError, match="not a year from 1970 to 9000"):
            moment.validate_python(f"{year}-01-01T00:00:00Z")


def test_an_import_of_unlike_clocks_is_known_by_whole_steps_above_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every duration is a whole number of steps of one tick, which says nothing."""
    count = 5000
    profile = SimpleNamespace(
        delegate_debug_id_str_id=np.zeros(count, np.int64),
        start_time=np.zeros(count, np.int64), end_time=np.arange(count) * 1000,
    )  # fmt: skip
    piece = SimpleNamespace(profile=profile, names=("Conv",))
    dump: Any = SimpleNamespace(pieces=lambda: iter([piece]))
    ticks = []
    for step in (0, 1, 1000):
        backend = SimpleNamespace(clock_step_ns=step, title="X")
        monkeypatch.setattr(clock, "backend_of_labels", lambda _, backend=backend: backend)
        ticks.append(clock._by_backend(dump) is not None)
    assert ticks == [False, False, True]


@pytest.mark.parametrize(
    ("count", "macs", "is_more"), [(2, 300, False), (3, 300, True), (3, 100, False)]
)
def test_another_export_puts_more_on_sme2_by_count_and_by_work(
    count: int, macs: int, is_more: bool
) -> None:
    subject: Any = SimpleNamespace(thresholds=Thresholds())
    now: list[Any] = [SimpleNamespace(macs=50)] * 2
    products: list[Any] = [SimpleNamespace(macs=100)] * 4
    other: list[Any] = [SimpleNamespace(macs=macs / count)] * count
    assert coverage._is_more(subject, other, now, products) is is_more


def test_an_entry_point_that_is_no_model_is_named() -> None:
    point: Any = SimpleNamespace(load=lambda: 3)
    source = ModelSource("m", "entry point pkg:M", entry_point=point)
    with pytest.raises(
        ExportError,
        match=r"^entry point pkg:M: 3 is not a torch\.nn\.Module, a class or a function$",
    ):
        source.load_class()


@pytest.mark.parametrize(
    ("model", "names"),
    [("a/net.pt2", ["net_pt2"]), ("a/net.py:Net", ["Net_net"]), ("a/Net.py:Net", [])],
)
def test_programs_of_one_name_are_told_apart_by_their_file(model: str, names: list[str]) -> None:
    request = ExportRequest(model)
    assert request._longer_names(request._plain_name()) == names


def test_a_tap_looks_behind_its_only_quantisation() -> None:
    graph = torch.fx.Graph()
    value = graph.call_function(operator.add, (graph.placeholder("x"), 1))
    value.name = "sum_1"
    quantized = graph.call_function(quantize_per_tensor, (value,))
    dequantized = graph.call_function(dequantize_per_tensor, (quantized,))
    assert taps._find_tapped_node(dequantized) is dequantized  # nothing reads it
    graph.output((dequantized,))
    assert taps._find_tapped_node(value) is dequantized
    # AND floats that somebody else reads too are the result
    graph.call_function(operator.neg, (value,))
    assert taps._find_tapped_node(value) is value


def quantize_per_tensor(value: torch.Tensor) -> torch.Tensor:
    return value


def dequantize_per_tensor(value: torch.Tensor) -> torch.Tensor:
    return value


def test_the_commit_of_executorch_is_the_packages() -> None:
    assert executorch.version.git_version == upstream.EXECUTORCH_REVISION
    assert len(upstream.EXECUTORCH_REVISION) == 40


def test_a_guard_that_does_not_end_is_killed_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_module, "_LONGEST_END_S", 0.05)
    with subprocess.Popen(
        ["sleep", "60"], start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as process:
        process_module._await_end(process)
        # No zombie is left for whoever looks next.
        assert process.returncode == -signal.SIGKILL
        assert process.stdout is not None
        assert process.stdout.closed


def test_what_another_etprof_left_is_killed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    left: list[Any] = [SimpleNamespace(group=77, id=78, text="etprof-runner")]
    killed: list[int] = []

    def kill(group: int) -> None:
        killed.append(group)
        left.clear()

    locks: Iterator[bool] = iter([False, True])
    real = device_lock._try_lock

    def try_lock(descriptor: int, path: Path) -> bool:
        return next(locks, True) and real(descriptor, path)

    monkeypatch.setattr(device_lock, "find_lost", lambda _: list(left))
    monkeypatch.setattr(device_lock, "kill_group", kill)
    monkeypatch.setattr(device_lock, "_try_lock", try_lock)
    told: list[tuple[MeasuredDevice, Holder]] = []
    phone = MeasuredDevice("phone", "the phone")
    with device_lock.device_lock(phone, lambda device, holder: told.append((device, holder))):
        pass
    assert killed == [77]
    ((device, holder),) = told
    assert (device, holder.has_been_ended) == (phone, True)
    assert holder.text.startswith("etprof-runner, left by ")


def test_a_lock_is_for_every_user_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    before = os.umask(0o077)
    try:
        with device_lock.device_lock(MeasuredDevice("phone", ""), lambda *_: None):
            assert (tmp_path / "phone.lock").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


def test_only_files_that_were_sent_are_renamed_for_a_device(tmp_path: Path) -> None:
    request = RunnerRequest(
        model=tmp_path / "m.pte", result=tmp_path / "r.json", runner=tmp_path / "runner"
    )
    remote, left = translate(request, {tmp_path / "m.pte": "/data/m.pte"}, "/data/out")
    assert remote.model == Path("/data/m.pte")
    assert remote.result == Path("/data/out/result.json")
    # What was not sent keeps its name.
    assert remote.runner == tmp_path / "runner"
    assert left == [("result.json", tmp_path / "r.json")]


def test_strays_of_what_falls_where_it_is_worse_are_those_of_what_rises() -> None:
    generator = np.random.default_rng(3)
    rising = generator.normal(0, 0.01, 60)
    rising[::12] += 0.2
    noises = [
        DeviceNoise({"x": {"s": (sign * rising).tolist()}}, ("x",) if sign < 0 else ())
        for sign in (1, -1)
    ]
    assert noises[0]._departures.logs.max() > 0.1
    np.testing.assert_allclose(noises[1]._departures.logs, noises[0]._departures.logs)
    np.testing.assert_allclose(noises[1]._departures.units, noises[0]._departures.units)


def test_a_launch_belongs_to_the_nearer_of_two_states() -> None:
    """Ten fast ones, some a bit slower, then five slow ones in a row: two stretches."""
    fast = [0.0, 0.02, 0.01, 0.4, 0.0, 0.4, 0.01, 0.4, 0.02, 0.0]
    states = _lasting_states([100 + value for value in [*fast, 1.0, 1.01, 1.02, 1.0, 1.01]])
    assert states is not None
    assert states[0] == 10
    # AND in turns they are no state
    assert _lasting_states([100 + value for value in [0, 1, 0.1, 1.1] * 4]) is None


def test_warm_ups_stand_before_the_samples_of_their_launch(tmp_path: Path) -> None:
    run = analyze(tmp_path / "r", on_off_run())
    experiments = [
        replace(experiment, loaded=replace(experiment.loaded, metrics=warmed(experiment.metrics)))
        for experiment in run.experiments[:1]
    ]
    chart = charts.latency_chart(experiments)
    assert chart is not None
    blocks = chart["panels"][0]["blocks"]
    slot = 1000 / len(blocks)
    for number, block in enumerate(blocks):
        starts = [float(dot.partition(" ")[0]) for dot in block["warmup"].split("M")[1:]]
        # Four dots over 15 % of what the launch has.
        assert starts == pytest.approx([slot * (number + 0.15 * i / 4) for i in range(4)], abs=0.06)


def warmed(metrics: Any) -> Any:  # noqa: ANN401 - of a run that has some
    blocks = [
        block.model_copy(update={"warmup_latency_ns": [block.latency_ns[0] * 2] * 4})
        for block in metrics.blocks
    ]
    return metrics.model_copy(update={"blocks": blocks})
