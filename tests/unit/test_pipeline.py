"""Measuring: right requests, nothing mixed, nothing finished ever lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.blocks import Experiment
from etprof.errors import TargetError
from etprof.manifest import write_manifest
from etprof.pipeline import Measured, Settings, measure
from etprof.program_files import Program
from etprof.run_directory import hash_file, load_metrics
from tests.fake_target import FakeTarget

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENTS = [Experiment("linux_sme2_on", "sme2"), Experiment("linux_sme2_off", "off")]
SETTINGS = Settings(blocks=4, threads=1, iterations=20, warmup=3)


def run(tmp_path: Path, target: FakeTarget, experiments: list[Experiment]) -> Measured:
    tmp_path.mkdir(exist_ok=True)
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    program = Program(name="m", label="m_fp32", model=model)
    run_directory = tmp_path / "run"
    measured = measure(
        program=program,
        target=target,
        run=run_directory,
        experiments=experiments,
        settings=SETTINGS,
        progress=lambda *_: None,
    )
    write_manifest(
        run=run_directory,
        program=program,
        target=target,
        experiments=experiments,
        settings=SETTINGS,
        measured=measured,
    )
    return measured


def test_timing_has_no_tracer_and_the_split_has_one(tmp_path: Path) -> None:
    target = FakeTarget()
    run(tmp_path, target, EXPERIMENTS)
    timing, split = target.requests[:8], target.requests[8:]
    assert all(request.etdump is None and request.outputs is None for request in timing)
    assert [request.etdump is not None for request in split] == [True, True]
    assert sorted(request.sme for request in timing) == ["off"] * 4 + ["sme2"] * 4
    assert {request.warmup for request in target.requests} == {3}


def test_raw_samples_of_every_block_are_kept(tmp_path: Path) -> None:
    run(tmp_path, FakeTarget(), EXPERIMENTS[:1])
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    experiment = metrics.experiments["linux_sme2_on"]
    assert [block.latency_ns[0] for block in experiment.blocks] == [1000, 1001, 1002, 1003]
    assert [len(block.latency_ns) for block in experiment.blocks] == [20] * 4


def test_files_have_the_names_of_the_contract(tmp_path: Path) -> None:
    run(tmp_path, FakeTarget(), EXPERIMENTS[:1])
    folder = tmp_path / "run" / "linux_sme2_on"
    stem = "m_fp32_linux_sme2_on_t1"
    assert {path.name for path in folder.iterdir()} == {
        f"{stem}.etdump",
        f"{stem}.log",
        f"{stem}_result.json",
        *(f"{stem}_b0{block}_result.json" for block in range(4)),
    }


def test_a_failed_block_loses_no_other(tmp_path: Path) -> None:
    # GIVEN the second launch fails
    measured = run(tmp_path, FakeTarget(failing=[1]), EXPERIMENTS[:1])
    # THEN the other three blocks and the split are there, and the failure is told
    assert sorted(measured.results["linux_sme2_on"]) == [0, 2, 3]
    assert measured.errors == ["launch 1 failed; try again"]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert [launch["error"] for launch in manifest["launches"]] == [
        None, "launch 1 failed; try again", None, None, None,
    ]  # fmt: skip
    log = (tmp_path / "run/linux_sme2_on/m_fp32_linux_sme2_on_t1.log").read_text()
    assert "timing block 1: launch 1 failed; try again" in log


def test_one_experiment_may_fail_whole(tmp_path: Path) -> None:
    # GIVEN an order in which every launch of one experiment fails
    probe = FakeTarget()
    run(tmp_path / "probe", probe, EXPERIMENTS)
    failing = [i for i, request in enumerate(probe.requests) if request.sme == "off"]
    measured = run(tmp_path, FakeTarget(failing=failing), EXPERIMENTS)
    # THEN the other is complete
    assert sorted(measured.results["linux_sme2_on"]) == [0, 1, 2, 3]
    assert measured.results["linux_sme2_off"] == {}
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    assert list(metrics.experiments) == ["linux_sme2_on"]


def test_when_the_first_launches_all_fail_the_rest_is_spared(tmp_path: Path) -> None:
    target = FakeTarget(failing=range(100))
    with pytest.raises(TargetError, match="launch 0 failed; try again"):
        run(tmp_path, target, EXPERIMENTS)
    assert len(target.requests) == 2


def test_the_manifest_says_who_what_where(tmp_path: Path) -> None:
    run(tmp_path, FakeTarget(), EXPERIMENTS[:1])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model"]["sha256"] == hash_file(tmp_path / "m.pte")
    assert manifest["platform"] == "linux"
    assert manifest["pins"]["executorch"] is not None
    assert manifest["settings"]["blocks"] == 4
    assert manifest["runner"]["build"] == {"compiler": "GNU"}
    for name, digest in manifest["files"].items():
        assert hash_file(tmp_path / "run" / name) == digest
