"""Run directories as etprof 0.1 wrote them: schema 1, no seal, kernel traces after the manifest.

Made of the runner's own files, but for what they say today only, and of JSON in the shape of its
journal.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from etprof.base.files import hash_file
from etprof.run.kernel_trace import read_kernel_trace
from etprof.targets.request import RunnerRequest
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

STARTED = "2026-11-01T05:00:00.000+00:00"
MODES = ("off", "sme2")
BLOCKS = 3


def host_run(folder: Path) -> Path:
    """`profile` on a host with SME2: timed and split, then its kernels, behind the manifest."""
    return _write_run(folder, "linux", blocks=BLOCKS, traced=True)


def emulator_run(folder: Path) -> Path:
    """`profile --target emulator`: split without timing, then its kernels."""
    return _write_run(folder, "emulator", blocks=0, traced=True)


def bench_run(folder: Path) -> Path:
    """A unit of `bench`, by its worker."""
    return _write_run(folder, "linux", blocks=BLOCKS, config={"path": None, "unit": {"model": {}}})


def failed_bench_run(folder: Path) -> Path:
    """A unit of `bench` whose program was not exported."""
    record = {**_record("linux_auto", "timing", 0), "error": "not exported: no such model"}
    document = {
        **_head("linux", folder),
        "status": "failed",
        "config": {"path": None, "unit": {"model": {}}},
        "settings": {},
        "experiments": [
            {"name": "linux_auto", "group": "", "sme": "auto", "threads": 1, "mode": "timing"}
        ],
        "launches": [record],
        "notes": [record["error"]],
        "files": {},
    }
    del document["inputs"], document["pins"]
    _write(folder / "manifest.json", document)
    return folder


def make_old(folder: Path) -> None:
    """Takes from a run's own files what they say since: its launches', and metrics.json's."""
    for path in folder.glob("*/*.json"):
        document = json.loads(path.read_text())
        if path.name.endswith("_kernels.json"):
            document = read_kernel_trace(path).model_dump(mode="json")
        for name in ("clock", "conditions", "input_ns", "output_ns", "inferences_per_sample"):
            document.pop(name, None)
        document["schema_version"] = 1
        document["sme"].pop("svl_bits", None)
        _write(path, document)
    if (folder / "metrics.json").is_file():
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics.pop("run_id", None)
        _write(folder / "metrics.json", metrics)


def downgrade(folder: Path, *, but: Collection[str] = ()) -> None:
    """Makes a manifest of schema 1 of the run's: without all that only later ones say, `but` some."""
    document = json.loads((folder / "manifest.json").read_text()) | {"schema_version": 1}
    if "kind" not in but:
        document["files"] = {name: entry["sha256"] for name, entry in document["files"].items()}
    for name in {"run_id", "checksum", "runners", "resumptions"}.difference(but):
        document.pop(name, None)
    for launch in document["launches"]:
        for name in {"asked", "runner_sha256"}.difference(but):
            launch.pop(name, None)
    _write(folder / "manifest.json", document)


def _write_run(
    folder: Path, platform: str, *, blocks: int, traced: bool = False, config: object = None
) -> Path:
    target = SimTarget(RunSpec(capabilities=Capabilities(platform=platform)))
    model = folder.parent / "m.pte"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_bytes(b"program")
    metrics: dict[str, Any] = {}
    launches = []
    for mode in MODES:
        name = f"{platform}_{mode}"
        stem = folder / name / f"m_fp32_{name}_t1"
        stem.parent.mkdir(parents=True)
        common: dict[str, Any] = {"model": model, "sme": mode, "threads": 1, "iterations": 20}
        own = []
        for block in range(blocks):
            result = Path(f"{stem}_b{block:02d}_result.json")
            target.run(RunnerRequest(**common, result=result))
            own.append({"block": block, **_block(json.loads(result.read_text()))})
            launches.append(_record(name, "timing", block))
        target.run(
            RunnerRequest(
                **common,
                result=Path(f"{stem}_result.json"),
                etdump=Path(f"{stem}.etdump"),
                outputs=Path(f"{stem}_outputs"),
            )
        )
        launches.append(_record(name, "etdump", None))
        Path(f"{stem}.log").write_text(f"{STARTED} timing block 0: finished (1.00 s)\n")
        etdump = f"{name}/{stem.name}.etdump"
        metrics[name] = {
            "sme": mode, "threads": 1, "etdump": etdump, "generated": None, "blocks": own,
        }  # fmt: skip
    is_timed = platform != "emulator"
    make_old(folder)
    _write(
        folder / "metrics.json",
        {"schema_version": 1, "times_are_meaningful": is_timed, "experiments": metrics},
    )
    document = {
        **_head(platform, folder),
        "status": "finished",
        "config": config,
        "settings": _settings(blocks),
        "experiments": [_experiment(f"{platform}_{mode}", mode) for mode in MODES],
        "launches": launches,
        "notes": [],
        "files": hashes(folder),
    }
    _write(folder / "manifest.json", document)
    if traced:
        _trace(folder, platform, target, model)
    return folder


def _trace(folder: Path, platform: str, target: SimTarget, model: Path) -> None:
    """The second pipeline of 0.1: its files stand in no manifest."""
    for mode in MODES:
        stem = folder / f"{platform}_{mode}" / f"m_fp32_{platform}_{mode}_t1"
        target.run(
            RunnerRequest(
                model=model,
                sme=mode,
                threads=1,
                iterations=2,
                result=Path(f"{stem}_trace_result.json"),
                kernel_trace=Path(f"{stem}_kernels.json"),
                outputs=Path(f"{stem}_trace_outputs"),
            )
        )
    make_old(folder)
    _write(folder / "kernel_evidence.json", {"schema_version": 1, "modes": {}})
    _write(folder / "delegation.json", {"schema_version": 1, "model": "m", "methods": {}})


def _head(platform: str, folder: Path) -> dict[str, Any]:
    model = folder.parent / "m.pte"
    return {
        "schema_version": 1,
        "created_at": STARTED,
        "updated_at": STARTED,
        "etprof_version": "0.1.0",
        "command": ["etprof", "profile", "m.pte"],
        "git": {"commit": "a" * 40, "branch": "main", "dirty": False},
        "platform": platform,
        "times_are_meaningful": platform != "emulator",
        "model": {
            "name": "m", "label": "m_fp32", "method": "forward", "backend": None,
            "precision": None, "export": None, "path": str(model),
            "sha256": hash_file(model) if model.exists() else None, "size_bytes": 7,
        },
        "inputs": [],
        "pins": {"executorch": "1.5.1", "torch": "2.13.0"},
        "runner": {"version": "0.1.0", "build": {"build_type": "Release"}},
        "cpu": {"architecture": "aarch64", "logical_cores": 8, "features": {"sme2": True}},
        "target": {"system": "Linux"},
    }  # fmt: skip


def _settings(blocks: int) -> dict[str, object]:
    return {
        "blocks": blocks, "min_seconds": 0.2, "etdump_iterations": 100, "seed": 0,
        "timeout_s": 3600.0, "cool_down_s": 0.0, "max_start_temperature_c": None,
        "max_wait_s": 300.0, "target_half_width": None, "budget_s": None, "generation": None,
    }  # fmt: skip


def _experiment(name: str, mode: str) -> dict[str, object]:
    return {
        "name": name, "sme": mode, "threads": 1, "group": "", "mode": "timing", "iterations": 20,
        "warmup": 10, "runner": None, "launcher": [], "cpus": [], "extra_arguments": [],
    }  # fmt: skip


def _record(experiment: str, purpose: str, block: int | None) -> dict[str, Any]:
    return {
        "experiment": experiment, "purpose": purpose, "block": block, "started_at": STARTED,
        "duration_s": 1.0, "error": None, "state_before": {}, "state_after": {}, "waited_s": 0.0,
    }  # fmt: skip


def _block(result: dict[str, Any]) -> dict[str, Any]:
    names = ("load", "first_inference_ns", "warmup_latency_ns", "latency_ns", "memory")
    return {**{name: result[name] for name in names}, "generation": None}


def hashes(folder: Path) -> dict[str, str]:
    """The member `files` of its manifest."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
