"""What `optimize` hears of its target: kernels and outputs in every mode, or a gain in time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from etprof.base.errors import TargetError
from etprof.base.files import hash_file
from etprof.config import TargetConfig
from etprof.measuring.configured import Listener
from etprof.optimize.proving import TargetEvaluator
from etprof.run.optimization import Gain, KernelCounts
from tests.world.sim_target import SimTarget
from tests.world.spec import SME2_KERNEL, Capabilities, Failure, Noise, Operator, RunSpec

LABEL = "Convolution (NHWC, PF32) IGEMM #1"
NEON = Operator(LABEL, 400)
SME2 = Operator(LABEL, 100, 0, {SME2_KERNEL: 7})
EAGER = np.arange(1, 11, dtype="<f4")
METHODS = ("prefill", "decode")
EMULATED = Capabilities(platform="emulator")


def off_by(error: float) -> bytes:
    """The outputs of a mode, all too large by that."""
    return (EAGER + np.float32(error)).tobytes()


def snr_db(error: float) -> float:
    return float(10 * np.log10(np.mean(np.square(EAGER, dtype=float)) / error**2))


def write_program(folder: Path, name: str = "optimized") -> Path:
    """A program of two methods with what they should give, and a convolution of 1000 products."""
    program = folder / f"{name}.pte"
    program.write_bytes(name.encode())
    data = folder / f"{name}.pte.data"
    data.mkdir()
    EAGER.tofile(data / "reference.bin")
    EAGER.tofile(data / "input.bin")
    files = {
        key: [
            {
                "index": 0, "dtype": "float32", "shape": [1, 10], "path": f"{data.name}/{file}.bin",
                "sha256": hash_file(data / f"{file}.bin"),
            }
        ]
        for key, file in (("inputs", "input"), ("references", "reference"), ("converted", "reference"))
    }  # fmt: skip
    manifest = {"model": "m", "backend": "xnnpack", "precision": "fp16"}
    manifest_path = folder / f"{name}.pte.json"
    manifest_path.write_text(json.dumps({**manifest, "methods": dict.fromkeys(METHODS, files)}))
    node = {
        "index": 0,
        "kind": "Conv2d",
        "operators": ["conv"],
        "attribution": "exact",
        "macs": 1000,
    }
    operator = {"name": "conv", "operator": "convolution.default", "macs": 1000, "delegate": 0}
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": [node]}
    method = {"operators": [operator], "delegates": [delegate]}
    report = {"schema_version": 1, "model": "m", "methods": dict.fromkeys(METHODS, method)}
    (folder / f"{name}.pte.delegation.json").write_text(json.dumps(report))
    return program


def evaluator(
    target: SimTarget, kind: str, *, threads: int | None = None, blocks: int | None = None
) -> TargetEvaluator:
    listener = Listener(lambda _: None, lambda *_: None, lambda *_: None)
    return TargetEvaluator(
        target, TargetConfig.model_validate({"kind": kind}), listener, threads, blocks
    )


def count(
    folder: Path, outputs: Mapping[str, bytes], *, methods: Sequence[str] = METHODS
) -> tuple[KernelCounts, SimTarget]:
    """Counts on an emulator that computes `outputs` by mode."""
    operators = {"sme2": (SME2,), "sme1": (NEON,), "off": (NEON,)}
    spec = RunSpec(
        operators=operators, outputs=outputs, capabilities=EMULATED, methods=METHODS
    )  # fmt: skip
    target = SimTarget(spec)
    program = write_program(folder)
    return evaluator(target, "emulator", threads=3, blocks=9).count(
        program, methods, folder / "counted"
    ), target


def test_kernels_and_work_of_all_methods_are_counted_and_the_worst_mode_is_told(
    tmp_path: Path,
) -> None:
    errors = {"sme2": 0.0001, "sme1": 0.001, "off": 0.0003}
    counted, target = count(tmp_path, {mode: off_by(error) for mode, error in errors.items()})
    assert counted.snr_db == pytest.approx(snr_db(0.001), abs=0.01)
    assert counted.model_copy(update={"snr_db": None}) == KernelCounts(
        sme2_calls=2 * 7, macs_on_sme2=2 * 1000, worst_mode="sme1"
    )
    # Every mode of every method is launched with the threads that were asked for, and has a report.
    launched = {(request.method, request.sme, request.threads) for request in target.requests}
    assert launched == {(method, mode, 3) for method in METHODS for mode in ("sme2", "sme1", "off")}
    for method in METHODS:
        assert (tmp_path / "counted" / method / "report.html").is_file()


def test_outputs_that_are_equal_have_no_worst_mode(tmp_path: Path) -> None:
    exact = dict.fromkeys(("sme2", "sme1", "off"), off_by(0.0))
    counted, _ = count(tmp_path, exact, methods=("decode",))
    assert counted == KernelCounts(sme2_calls=7, macs_on_sme2=1000)


def test_the_first_mode_with_wrong_outputs_is_the_problem(tmp_path: Path) -> None:
    outputs = {"sme2": off_by(0.0001), "sme1": off_by(3.0), "off": off_by(0.0)}
    counted, _ = count(tmp_path, outputs, methods=("decode",))
    assert counted.worst_mode == "sme1"
    assert counted.snr_db == pytest.approx(snr_db(3.0), abs=0.01)
    assert counted.problem is not None
    assert counted.problem.startswith("sme1")


def time_in_turns(
    folder: Path, spec: RunSpec, *, methods: Sequence[str] = METHODS
) -> tuple[tuple[Gain, ...], SimTarget]:
    """Times `optimized`, which takes a quarter, against `baseline`."""
    target = SimTarget(spec)
    candidate, reference = write_program(folder), write_program(folder, "baseline")
    prover = evaluator(target, "linux", blocks=6)
    run = folder / "runs" / "3_against_0"
    return prover.time_in_turns(candidate, reference, methods, run), target


def timed(modes: str, **fields: object) -> RunSpec:
    """A machine with SME2, or without, whose outputs are right unless `fields` say otherwise."""
    exact = dict.fromkeys(("sme2", "sme1", "off"), off_by(0.0))
    spec = RunSpec(
        operators=dict.fromkeys(exact, (NEON,)), outputs=exact, methods=METHODS,
        capabilities=Capabilities(sme=modes, counts=False), noise=Noise(block=0.002),
    )  # fmt: skip
    faster = replace(spec, operators=dict.fromkeys(exact, (replace(NEON, us=100),)))
    return replace(spec, **{"programs": {"optimized": faster}, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("best", "mode"), [("sme2", "sme2"), ("sme1", "sme1"), ("off", "auto")])
def test_a_gain_is_of_the_best_mode_and_of_each_method(
    tmp_path: Path, best: str, mode: str
) -> None:
    gains, target = time_in_turns(tmp_path, timed(best))
    assert [(gain.method, gain.sme, gain.pairs, gain.verdict, gain.problem) for gain in gains] == [
        (method, mode, 6, "faster", None) for method in METHODS
    ]
    for gain in gains:
        assert gain.low is not None
        assert gain.high is not None
        assert 3.9 < gain.low < gain.speed_up < gain.high < 4.1
    # Where its report is, seen from the record of the search.
    assert [gain.run for gain in gains] == [f"runs/3_against_0/{method}" for method in METHODS]
    assert all((tmp_path / gain.run / "report.html").is_file() for gain in gains)
    launches = [(each.model.stem, each.sme, each.threads) for each in target.requests]
    assert set(launches) == {("optimized", mode, 1), ("baseline", mode, 1)}


@pytest.mark.parametrize("is_reference_wrong", [False, True])
def test_wrong_outputs_are_held_against_the_new_program_alone(
    tmp_path: Path, *, is_reference_wrong: bool
) -> None:
    wrong = dict.fromkeys(("sme2", "sme1", "off"), off_by(3.0))
    spec = timed("sme2")
    worse = replace(spec.programs["optimized"], outputs=wrong)
    outputs = wrong if is_reference_wrong else spec.outputs
    spec = replace(spec, programs={"optimized": worse}, outputs=outputs)
    ((gain,), _) = time_in_turns(tmp_path, spec, methods=("decode",))
    assert gain.verdict == "faster"
    if is_reference_wrong:
        assert gain.problem is None
    else:
        assert gain.problem is not None
        assert "with" in gain.problem


def test_a_launch_that_fails_is_told_with_what_was_kept(tmp_path: Path) -> None:
    spec = timed("sme2", failure=Failure(launches=frozenset({2})))
    with pytest.raises(TargetError, match="launch 2 failed") as caught:
        time_in_turns(tmp_path, spec, methods=("decode",))
    run = tmp_path / "runs" / "3_against_0" / "decode"
    assert str(caught.value).endswith(f"; {run} has what was launched")
