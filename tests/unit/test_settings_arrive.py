"""I8, T18: every field of a config changes what reaches the runner, just where it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.compare.pairs import compare_within
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import UsageError
from etprof.config import (
    Config,
    ExperimentConfig,
    GenerationConfig,
    MeasurementConfig,
    TargetConfig,
    parse_config,
)
from etprof.measuring import launching
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import (
    configured_experiments,
    configured_program,
    configured_settings,
    plan,
    planned_target,
)
from etprof.run import generation
from etprof.run.load import Run as LoadedRun
from etprof.run.manifest import ComparisonSettings
from etprof.targets import registry
from etprof.targets.registry import TARGETS, kind_of
from tests.known_runs import Experiment, Op, Run, write_run
from tests.manifests import edit_manifest
from tests.world.sim_target import SimTarget

if TYPE_CHECKING:
    from etprof.targets.request import RunnerRequest

ASKED = (
    "cold_inputs", "cpus", "etdump", "extra_arguments", "generation", "instruction_counts", "iterations",
    "kernel_trace", "launcher",
    "min_seconds", "outputs", "runner", "seed", "sme", "sme_vector_bits", "threads", "timeout_s",
    "warmup", "warmup_seconds", "warmup_steady",
)  # fmt: skip
COUNTING = {"launches", "kernel_trace", "iterations", "warmup"}
"""What a launch that counts differs in from the others, and what its loss changes."""
MEASUREMENT: dict[str, tuple[object, set[str]]] = {
    "blocks": (6, {"launches"}),
    "min_seconds": (0.7, {"min_seconds"}),
    "operator_iterations": (7, {"iterations"}),
    "operator_launches": (2, {"launches", "iterations"}),
    "kernels": (False, COUNTING),
    "instructions": (True, {"launches", "instruction_counts"}),
    "seed": (3, {"seed", "order"}),
    "timeout_s": (77.0, {"timeout_s"}),
    "cool_down_s": (1.5, {"slept"}),
    "max_start_temperature_c": (50.0, {"slept"}),
    "max_wait_s": (3.0, {"slept"}),
    "target_half_width": (0.5, {"launches"}),
    # Nothing is launched for it: tests/integration/test_right_answers.py.
    "allow_inaccurate": (True, set()),
    "budget_s": (1e-9, {"launches", "order", "min_seconds", "iterations", "kernel_trace"}),
}
"""Of each field: a value that is not the default, and what differs then, all of it.

Launches that count kernels are those of experiments with SME and without a runner of their own.
"""
EXPERIMENT: dict[str, tuple[object, set[str]]] = {
    "name": ("other", {"files"}),
    "program": ("beside", {"program"}),
    "sme": ("off", {"sme", *COUNTING}),
    "mode": ("operators", {"order", *COUNTING}),
    "warmup_seconds": (0.5, {"warmup_seconds"}),
    "warmup_steady": (True, {"warmup_steady"}),
    "cold_inputs": (True, {"cold_inputs"}),
    "sme_vector_bits": (256, {"sme_vector_bits"}),
    "iterations": (5, {"iterations"}),
    "warmup": (4, {"warmup"}),
    "cpus": ([2, 3], {"cpus"}),
    "runner": ("own-runner", {"runner", *COUNTING}),
    "preset": ("own", {"runner", *COUNTING}),
    "launcher": (["nice"], {"launcher"}),
    "extra_arguments": (["--verbose"], {"extra_arguments"}),
    "threads": (3, {"threads"}),
}


TARGET: dict[str, object] = {
    "serial": "ABC", "connect": "10.0.0.1:5555", "remote_folder": "/data/local/tmp/x",
    "reconnect_s": 5.0, "trace_runner": "own-runner", "trace_preset": "own", "debugger": "gdb",
}  # fmt: skip
GENERATED: dict[str, object] = {"new_tokens": 4, "prompt_tokens": [1, 2]}
GENERATION: dict[str, dict[str, object]] = {
    "new_tokens": {"new_tokens": 5},
    "prompt_tokens": {"prompt_tokens": [1, 2, 3]},
    "prompt_length": {"prompt_tokens": None, "prompt_length": 3},
    "prompt": {"prompt_tokens": None, "prompt": "Hello", "tokenizer": "own-runner"},
    "tokenizer": {"tokenizer": "own-runner"},
    "prefill_method": {"prefill_method": "read"},
    "decode_method": {"decode_method": "add"},
}
"""Of each field: what is given then."""
ANALYSIS: dict[str, object] = {
    "compare_pairs": [{"baseline": "first", "candidate": "third"}], "margin": 0.5,
}  # fmt: skip


class Clock:
    """Sleeps at once, and keeps for how long."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(tmp_path, monkeypatch)


class Log:
    """Runs configs and tells what reached the target."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch, self._runs = folder, patch, 0
        patch.chdir(folder)
        (folder / "m.pte").write_bytes(b"program")
        (folder / "beside.pte").write_bytes(b"beside")
        own = folder / "build" / "own" / "cpp" / "runner" / "etprof-runner"
        own.parent.mkdir(parents=True)
        own.write_bytes(b"runner")
        (folder / "own-runner").write_bytes(b"runner")

    def of(
        self, measurement: dict[str, Any], experiment: dict[str, Any], kind: str = "linux"
    ) -> dict[str, object]:
        """Measures two experiments, the first of which is `experiment`."""
        self._runs += 1
        clock, target = Clock(), SimTarget()
        # Warm for a minute: it cools by nothing, so only a limit above it ends a wait.
        target.temperatures_c = [60.0] * 10_000
        self._patch.setattr(launching, "time", clock)
        first = {"name": "first", "sme": "sme2", "warmup": 1} | experiment
        programs = {"beside": {"model": "beside.pte"}} if "program" in first else {}
        text = json.dumps(
            {
                "model": "m.pte",
                "programs": programs,
                "output_root": "out",
                "target": kind,
                "experiments": [first, {"name": "second", "sme": "off"}],
                "measurement": {"blocks": 4} | measurement,
            }
        )
        config = parse_config(text, "c.json")
        measure(
            program=configured_program(config),
            target=target,
            run=self._folder / f"run{self._runs}",
            planned=plan(configured_experiments(config), configured_settings(config), target),
            progress=lambda *_: None,
        )
        return describe(target.requests, clock)


def describe(requests: list[RunnerRequest], clock: Clock) -> dict[str, object]:
    """What was asked, each aspect apart: which values there are, whatever the launches' number."""
    described: dict[str, object] = {
        name: {_plain(getattr(request, name)) for request in requests} for name in ASKED
    }
    names = [request.result.parent.name for request in requests if request.min_seconds]
    return described | {
        "launches": len(requests),
        # Of the launches that every number of blocks has.
        "order": [name == "second" for name in names][:8],
        "program": {request.model.name for request in requests},
        "files": {request.result.parent.name for request in requests},
        "slept": clock.slept,
    }


def _plain(value: object) -> object:
    """An instrument is on or off; where its file is, is another matter."""
    if not isinstance(value, Path):
        return str(value)
    if value.suffix == ".json":  # counts or the operators' clock
        return value.stem.rsplit("_", 1)[-1]
    return value.suffix or value.name[-8:]


def test_every_field_has_its_place() -> None:
    assert set(MEASUREMENT) == set(MeasurementConfig.model_fields)
    assert set(EXPERIMENT) == set(ExperimentConfig.model_fields)
    assert set(TARGET) == set(TargetConfig.model_fields) - {"kind"}
    assert set(GENERATION) == set(GenerationConfig.model_fields)
    assert set(ANALYSIS) == set(ComparisonSettings.model_fields)


@pytest.mark.parametrize("name", MEASUREMENT)
def test_a_field_of_the_measurement_arrives(log: Log, name: str) -> None:
    """T18: the seed, cool-down and temperature wait could be broken without a red test."""
    value, places = MEASUREMENT[name]
    # The longest wait is one for a temperature; six blocks at least tell how well a median is known.
    needed: dict[str, Any] = {}
    if name == "max_wait_s":
        needed = {"max_start_temperature_c": 50.0}
    elif name == "target_half_width":
        needed = {"blocks": 8}
    kind = "emulator" if name == "instructions" else "linux"
    plain, given = (log.of(each, {}, kind) for each in (needed, {**needed, name: value}))
    assert differences(plain, given) == places


@pytest.mark.parametrize("name", EXPERIMENT)
def test_a_field_of_an_experiment_arrives(log: Log, name: str) -> None:
    """T18: cpu_affinity could be dropped without a red test."""
    value, places = EXPERIMENT[name]
    # What computes is simulated either way.
    kind = "emulator" if name == "sme_vector_bits" else "linux"
    plain, given = (log.of({}, each, kind) for each in ({}, {name: value}))
    assert differences(plain, given) == places


@pytest.mark.parametrize("kind", [each.name for each in TARGETS])
def test_a_vector_length_is_for_those_who_can_have_several(log: Log, kind: str) -> None:
    """C1, I8: refused before anything is launched; on an emulated CPU one of those that exist."""
    del log
    experiment = {"name": "first", "sme": "sme2", "sme_vector_bits": 256}
    if not kind_of(kind).has_vector_lengths:
        with pytest.raises(UsageError, match=r"experiments\.0\.sme_vector_bits is for emulator"):
            config_of(target=kind, experiments=[experiment])
        return
    (found,) = configured_experiments(config_of(target=kind, experiments=[experiment]))
    assert found.sme_vector_bits == 256
    with pytest.raises(UsageError, match="sme_vector_bits"):
        config_of(target=kind, experiments=[experiment | {"sme_vector_bits": 200}])


def differences(one: dict[str, object], other: dict[str, object]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


def config_of(**changes: object) -> Config:
    first = {"name": "first"}
    document = {"model": "m.pte", "output_root": "out", "experiments": [first]} | changes
    return parse_config(json.dumps(document), "c.json")


@pytest.mark.parametrize("name", TARGET)
@pytest.mark.parametrize("kind", [each.name for each in TARGETS])
def test_a_field_of_the_target_arrives_or_is_refused(
    log: Log, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """I8: on each kind of target, before anything is launched."""
    del log  # it wrote the files that are named
    takes, made = kind_of(kind).takes, list[dict[str, object]]()

    def make(**given: object) -> SimTarget:
        made.append(given)
        return SimTarget()

    monkeypatch.setattr(registry, "load", lambda _: make)
    target = {"kind": kind, name: TARGET[name]}
    if name not in takes:
        with pytest.raises(UsageError, match=name):
            config_of(target=target)
        return
    planned_target(config_of(target=target))
    planned_target(config_of(target={"kind": kind}))
    parameter = takes[name]
    given, without = (each.get(parameter) for each in made)
    assert given != without
    assert str(TARGET[name]) in str(given)


@pytest.mark.parametrize("name", GENERATION)
def test_a_field_of_the_generation_arrives(
    log: Log, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """I8: in what each launch is asked to generate."""
    del log
    monkeypatch.setattr(generation, "load_tokenizer", lambda _: None)
    monkeypatch.setattr(generation, "encode_prompt", lambda *_: (7,))
    plain = configured_settings(config_of(generation=GENERATED)).generation
    given = {**GENERATED, **GENERATION[name]}
    found = configured_settings(config_of(generation=given)).generation
    assert plain is not None
    assert found is not None
    arrived = "prompt_tokens" if name == "prompt_length" else name
    assert getattr(found, arrived) != getattr(plain, arrived)


@pytest.mark.parametrize("name", ANALYSIS)
def test_a_field_of_the_analysis_arrives(tmp_path: Path, name: str) -> None:
    """I8: the margin and the pairs of the config were ignored without a red test."""
    latency = [100.0 + block % 2 for block in range(10)]
    run = Run(
        [
            Experiment(each, [Op("Softmax (NC, F32) #1", 9)], sme=sme, latency_us=latency)
            for each, sme in (("first", "off"), ("second", "sme2"), ("third", "off"))
        ]
    )

    def compared(folder: Path, analysis: dict[str, object]) -> set[tuple[str, str, float]]:
        config = {"path": "c.json", "content": {"analysis": analysis}}
        edit_manifest(write_run(folder, run), lambda manifest: manifest.update(config=config))
        return {
            (c.baseline.experiment.name, c.candidate.experiment.name, c.latency.margin)
            for c in compare_within(analyze_run(LoadedRun.load(folder)))
            if c.latency
        }

    found = compared(tmp_path / "a", {name: ANALYSIS[name]})
    plain = compared(tmp_path / "b", {})
    assert found
    assert found != plain
    if name == "margin":
        assert {margin for *_, margin in found} == {0.5}
    else:
        assert {(one, other) for one, other, _ in found} == {("first", "third")}
