"""The simulated runner answers as the installed one: the same requests, answers of the same shape."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.errors import EtprofError
from etprof.etdump.reader import load_etdump
from etprof.export.request import ExportRequest
from etprof.run.kernel_trace import read_kernel_trace
from etprof.targets.local import LocalTarget
from etprof.targets.request import RunnerRequest
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.targets import Target
    from tests.integration.conftest import Exports

MAPS = {"memory"}
"""Members whose keys are the machine's own."""


def asked(folder: Path, model: Path, **changes: Any) -> RunnerRequest:  # noqa: ANN401
    plain = RunnerRequest(
        model=model, result=folder / "r.json", iterations=3, warmup=2, threads=1, seed=7
    )
    paths = {name: folder / file for name, file in changes.items() if name in INSTRUMENTS}
    return replace(plain, **{**changes, **paths})


INSTRUMENTS = ("etdump", "kernel_trace", "outputs")
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no warm-up": {"warmup": 0},
    "seconds": {"iterations": None, "min_seconds": 0.001},
    "two threads": {"threads": 2},
    "threads of its own choice": {"threads": None},
    "SME off": {"sme": "off"},
    "an ETDump": {"etdump": "x.etdump"},
    "outputs": {"outputs": "o"},
    "both": {"etdump": "x.etdump", "outputs": "o"},
    "kernels": {"kernel_trace": "k.json"},
    "kernels and outputs": {"kernel_trace": "k.json", "outputs": "o"},
    "SME2 where there is none": {"sme": "sme2"},
    "SME1 where there is none": {"sme": "sme1"},
    "another method": {"method": "backward"},
}


def shape(value: object, name: str = "") -> object:
    """Keys and kinds, without what was measured."""
    if isinstance(value, dict):
        if name in MAPS:
            return "map"
        return {key: shape(each, key) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [*{json.dumps(shape(each)) for each in value}][:1] and ["…"]
    return type(value).__name__


def blocks(path: Path) -> list[str | None]:
    dump = load_etdump(path)
    return [dump.names[name_id] for name_id in dump.blocks.name_id]


def answer(target: Target, request: RunnerRequest) -> dict[str, Any]:
    """What is there afterwards, without figures."""
    folder = request.result.parent
    folder.mkdir()
    try:
        target.run(request)
    except EtprofError as error:
        return {"error": type(error).__name__, "files": sorted(p.name for p in folder.iterdir())}
    result = json.loads(request.result.read_text())
    found: dict[str, Any] = {
        "files": sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*")),
        "result": shape(result),
        "echoed": {key: result[key] for key in ("seed", "method", "pass")},
        "sme": (result["sme"]["requested"], result["sme"]["in_force"]),
        "warm-up": len(result["warmup_latency_ns"]),
        "requested": result["threads"]["requested"],
        "traces": result["runner"]["build"]["trace"],
    }
    if request.iterations is not None:
        found["iterations"] = (result["iterations"], len(result["latency_ns"]))
    if request.etdump is not None:
        found["blocks"] = blocks(request.etdump)
    if request.kernel_trace is not None:
        trace = json.loads(request.kernel_trace.read_text())
        found["trace"] = shape(trace)
        operators = read_kernel_trace(request.kernel_trace).operators
        found["operator"] = shape(operators[0].model_dump(mode="json"))
        found["execution"] = shape(trace["executions"][0])
        found["phases"] = [each["phase"] for each in trace["executions"]]
    return found


@pytest.mark.parametrize("name", REQUESTS)
def test_the_simulated_runner_answers_as_the_real_one(
    name: str, exports: Exports, tmp_path: Path
) -> None:
    model = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    real = LocalTarget()
    if real.sme_modes() != ("auto",):
        pytest.skip("this CPU has SME; the requests are for one without")
    simulated = SimTarget(RunSpec(capabilities=Capabilities(sme="off")))
    answers = [
        answer(target, asked(tmp_path / folder, model, **REQUESTS[name]))
        for folder, target in (("real", real), ("simulated", simulated))
    ]
    assert answers[1] == answers[0]


def test_the_world_has_modes_that_differ(tmp_path: Path) -> None:
    """On a CPU with SME2: kernels of the mode, and times as the spec has them."""
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    spec = RunSpec()
    target = SimTarget(spec)
    medians = {}
    for mode in target.sme_modes():
        result = target.run(asked(tmp_path / "x", model, sme=mode))
        assert result.sme is not None
        assert result.sme.in_force == mode
        medians[mode] = sorted(result.latency_ns)[1]
        assert medians[mode] == pytest.approx(spec.execute_ns(mode), rel=0.05)
    assert medians["sme2"] < medians["sme1"] < medians["off"]
