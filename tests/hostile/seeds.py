"""The sound files that mutations start from: made once by each worker, copied for each case."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from etprof.base.files import hash_file
from etprof.bench.archives import pack_run
from etprof.cli import main
from etprof.history.store import open_store
from etprof.targets.device_lock import this_host
from tests.known_etdumps import foreign_etdump
from tests.known_runs import Op, on_off_run, write_run
from tests.measured_runs import MeasuredRun, scaled, write_measured
from tests.upstream_files import minibench_json, runner_log, xctest_log
from tests.world.results import result_document

PROMPT: Final = "one two three"
_PROGRAM: Final = b"\x1c\0\0\0ET12" + bytes(256)
"""Begins like a program; what measures it is a stand-in."""


def make_seeds(folder: Path, *, with_torch: bool) -> None:
    """Writes the trees below `folder`: those of kinds that need torch, or all others."""
    if with_torch:
        _make_record(folder / "record")
        return
    _make_run(folder / "run")
    _make_measure(folder / "measure")
    _make_history(folder / "history")
    _make_foreign(folder / "foreign")


def _make_foreign(folder: Path) -> None:
    """What other programs leave, for `etprof import`."""
    folder.mkdir()
    (folder / "model.etdump").write_bytes(foreign_etdump())
    (folder / "runner.log").write_text(runner_log([1.3, 0.13, 0.126], threads=2))
    (folder / "bench.json").write_text(minibench_json())
    (folder / "ios.log").write_text(xctest_log([0.012, 0.0125, 0.0118]))


def _make_record(folder: Path) -> None:
    """A program with an ETRecord that is sound."""
    from etprof.etrecord.program import read_etrecord
    from tests.etrecord_sample import make_program, write_etrecord

    folder.mkdir()
    (folder / "m.pte").write_bytes(_PROGRAM)
    read_etrecord(write_etrecord(folder / "x.etrecord", make_program()))


def _make_run(folder: Path) -> None:
    """A run with everything a run directory can hold, and the program's references beside it."""
    folder.mkdir()
    known = on_off_run()
    experiments = [
        replace(entry, executions=3, kernels=kernel_trace(entry.name, entry.ops))
        for entry in known.experiments
    ]
    launches = [_launch(entry.name, 0) for entry in experiments]
    described = replace(known, experiments=experiments, delegation=_delegation(), launches=launches)
    run = write_run(folder / "run", described)
    np.array([1, 2, 3, 4], "<f4").tofile(folder / "reference_0.bin")
    for entry in experiments:
        add_result(run / entry.name / f"known_{entry.name}_t1")
    (run / "export.json").write_text(json.dumps(_export(folder, "known")))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["model"]["path"] = "known.pte"
    manifest["notes"] = ["a note"]
    manifest["git"] = {"commit": "c" * 40, "branch": "main", "dirty": False}
    manifest["files"] = {
        path.relative_to(run).as_posix(): hash_file(path)
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    manifest["config"] = {"path": "config.json", "content": _config()}
    (run / "manifest.json").write_text(json.dumps(manifest))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["experiments"]["android_sme2"]["generated"] = _GENERATED
    for block in metrics["experiments"]["android_sme2"]["blocks"]:
        block["generation"] = _GENERATION
    (run / "metrics.json").write_text(json.dumps(metrics))
    (folder / "run" / "report.html").write_text("<!doctype html>")
    (folder / "m.pte").write_bytes(b"program")
    (folder / "run.json").write_text(json.dumps(_config()))
    open_store(folder / "empty.sqlite").close()
    (folder / "thresholds.json").write_text(json.dumps({"norm_share": 0.2, "variation": 0.1}))
    (folder / "archive.tar.gz").write_bytes(pack_run(run))
    with zipfile.ZipFile(folder / "package.whl", "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("lib/libetprof.so", b"\0Convolution (NHWC, F32)\0kai_run_warp_f32\0")


def add_result(stem: Path) -> None:
    result = result_document(1000) | {
        "inputs": [{"index": 0, "dtype": "float32", "shape": [4], "size_bytes": 16}],
        "outputs": [{"index": 0, "dtype": "float32", "shape": [4], "size_bytes": 16}],
        "sme": {"requested": "auto", "in_force": "off"},
    }
    stem.with_name(f"{stem.name}_result.json").write_text(json.dumps(result))
    outputs = stem.with_name(f"{stem.name}_outputs")
    outputs.mkdir()
    np.array([1, 2, 3, 4.5], "<f4").tofile(outputs / "output_0.bin")


def _launch(experiment: str, block: int) -> dict[str, object]:
    state = {"hottest_c": 30.0, "governor": "schedutil", "load_1min": 0.1}
    return {
        "experiment": experiment, "purpose": "timing", "block": block, "duration_s": 1.0,
        "started_at": "2026-11-21T05:00:00.000+00:00", "state_before": state, "state_after": state,
        "error": None, "waited_s": 0.5,
    }  # fmt: skip


def kernel_trace(mode: str, ops: Any) -> dict[str, object]:  # noqa: ANN401
    kernel = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
    level = "sme2" if mode.endswith("sme2") else "neon"
    entry = {"name": kernel, "level": level, "load_calls": 0, "execution_calls": [3, 3]}
    execution = {"start_ns": 0, "duration_ns": 900_000, "aligned": True}
    return {
        "schema_version": 1,
        "method": "forward",
        "sme": {"requested": mode, "in_force": "sme2" if level == "sme2" else "off"},
        "clock": {"mark_cost_ns": 50.0, "marks": 10},
        "kernels": [entry],
        "executions": [{**execution, "phase": phase} for phase in ("First", "Execute")],
        "all_operators_named": True,
        "operators": [_traced(op, kernel) for op in ops],
    }


def _traced(op: Op, kernel: str) -> dict[str, object]:
    return {
        "name": op.label, "delegate": 0 if op.is_delegated else None,
        "start_ns": [0, 0], "duration_ns": [op.us * 1000] * 2,
        "kernels": [{"name": kernel, "execution_calls": [1, 1]}],
    }  # fmt: skip


def _delegation() -> dict[str, Any]:
    kinds = [("Conv2d", "conv"), ("DepthwiseConv2d", "depthwise"), ("Conv2d", "last")]
    nodes = [
        {"kind": kind, "operators": [name], "attribution": "exact", "macs": 800_000}
        for kind, name in kinds
    ]
    operators = [
        {
            "name": name, "operator": "convolution.default", "macs": 800_000, "reason": "a reason",
            "origin": {"module_path": f"blocks.{i}.conv", "module_type": "Conv2d",
                       "source": {"file": "model.py", "line": 12}},
        }
        for i, (_, name) in enumerate(kinds)
    ]  # fmt: skip
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": operators, "delegates": [delegate]}
    return {"schema_version": 1, "model": "known", "methods": {"forward": method}}


_GENERATION: Final = {
    "time_to_first_token_ns": [4_000_000], "prefill_tokens_per_second": [100.0],
    "decode_tokens_per_second": [50.0], "token_latency_ns": [1_000_000, 2_000_000],
}  # fmt: skip
_GENERATED: Final = {
    "prompt_tokens": [1, 2], "tokens": [3, 4, 5], "prefill_method": "prefill",
    "decode_method": "decode", "prefilled_tokens": 2, "prompt": "say", "text": "a b c",
    "differing_blocks": [1],
}  # fmt: skip


def _export(folder: Path, model: str) -> dict[str, Any]:
    tensor = {"index": 0, "dtype": "float32", "shape": [4], "path": "reference_0.bin"}
    tensor["sha256"] = hash_file(folder / "reference_0.bin")
    given = tensor | {"sha256": "a" * 64} if model == "known" else tensor
    method = {
        "inputs": [given],
        "references": [tensor],
        "check": {"outputs": [{"index": 0, "snr_db": 90.0}]},
    }
    return {
        "model": model, "backend": "xnnpack", "precision": "fp16", "method": "forward",
        "source": {"sha256": "d" * 64}, "versions": {"executorch": "1.5.1", "etprof": "0.1.0"},
        "options": {"weights": None, "channels_last": False}, "methods": {"forward": method},
    }  # fmt: skip


def _config() -> dict[str, Any]:
    side = {"experiment": "one", "threads": 1}
    return {
        "model": "m.pte",
        "output_root": "finished",
        "target": {"kind": "local"},
        "experiments": [
            {"name": "one", "sme": "auto", "runs": 5, "warmup": 1, "threads": [1]},
            {"name": "two", "runs": 5, "warmup": 1, "threads": 2, "cpu_affinity": "0-1"},
        ],
        "measurement": {"blocks": 2, "min_seconds": 0.01, "etdump_runs": 3, "seed": 1},
        "analysis": {
            "compare_pairs": [{"baseline": side, "candidate": "two", "label": "1 against 2"}],
            "margin": 0.05,
        },
    }


def _make_measure(folder: Path) -> None:
    """A program, everything that says how to measure it, and a run of it that can be resumed."""
    folder.mkdir()
    (folder / "m.pte").write_bytes(_PROGRAM)
    np.array([1, 2, 3, 4], "<f4").tofile(folder / "reference_0.bin")
    np.save(folder / "x.npy", np.ones((1, 4), "<f4"))
    (folder / "m.pte.json").write_text(json.dumps(_export(folder, "m")))
    (folder / "m.pte.delegation.json").write_text(json.dumps(_delegation()))
    (folder / "config.json").write_text(json.dumps(_config()))
    generation = {"new_tokens": 4, "prompt_tokens": "prompt.txt", "tokenizer": "tokenizer.json"}
    (folder / "generation.json").write_text(json.dumps(_config() | {"generation": generation}))
    (folder / "prompt.txt").write_text("1, 2, 3")
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    table = [f"{base64.b64encode(bytes([n])).decode()} {n}" for n in range(256)]
    (folder / "tiktoken.model").write_text("\n".join(table))
    matrix = {
        "name": "known", "models": ["toy_cnn", {"model": "decoder", "method": "forward"}],
        "precisions": ["fp32", "int8"], "backends": ["xnnpack"], "threads": [1, 2],
        "devices": [{"name": "host", "kind": "local"}], "sme": ["on", "off"],
        "measurement": {"blocks": 2, "runs": 3, "warmup": 1, "min_seconds": 0.1},
    }  # fmt: skip
    (folder / "matrix.json").write_text(json.dumps(matrix))
    locks = folder / "locks"
    locks.mkdir()
    (locks / f"{this_host().key}.lock").write_text("1\netprof run (process 1 of someone)")
    run_quietly("run", folder / "config.json", folder=folder)


def _tokenizer() -> dict[str, Any]:
    """A tokenizer of every part that its library has: what merges, and what begins a text."""
    tokens = ["<s>", *sorted({*PROMPT} - {" "}), "on", "one"]
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        "model": {
            "type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": ["o n", "on e"], "unk_token": "<s>", "dropout": None, "fuse_unk": False,
        },
    }  # fmt: skip


def _make_history(folder: Path) -> None:
    """A store of a few runs with two baselines' worth of repeats, and its exports."""
    folder.mkdir()
    store = folder / "history.sqlite"
    runs = [
        MeasuredRun(minute=number, blocks_us=scaled(1 + number / 100), experiments=("off", "on"))
        for number in range(4)
    ] + [MeasuredRun(minute=9, model="other", failing={"off": "it failed"})]
    for number, run in enumerate(runs):
        place = write_measured(folder / f"r{number}", run)
        run_quietly("history", "add", place, "--store", store, folder=folder)
    run_quietly("history", "pin", "base", "1", "--store", store, folder=folder)
    for kind in ("json", "parquet", "hud"):
        name = folder / f"export.{kind}"
        run_quietly("history", "export", name, "--store", store, "--format", kind, folder=folder)
    open_store(folder / "empty.sqlite").close()
    for leftover in folder.glob("*.sqlite-*"):
        leftover.unlink()


def run_quietly(*words: object, folder: Path) -> None:
    """Runs a command that must succeed, in `folder`."""
    output = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output):
        code = main([str(word) for word in words])
    if code != 0:
        msg = f"etprof {' '.join(map(str, words))} ended with {code}"
        raise RuntimeError(msg)
