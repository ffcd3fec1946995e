"""Runs a program once in every SME mode with the kernel trace and gathers the evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etprof.analysis.split.evidence import read_evidence
from etprof.analysis.split.kernels import evidence_document, gather_evidence
from etprof.base.atomic import write_json
from etprof.measuring.journal import hash_files
from etprof.run.directory import experiment_files
from etprof.run.kernel_trace import read_kernel_trace
from etprof.run.manifest import load_manifest, save_manifest
from etprof.targets.request import RunnerRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.analysis.split.evidence import ModeEvidence
    from etprof.analysis.split.kernels import KernelEvidence
    from etprof.run.directory import ExperimentFiles
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target

EVIDENCE = "kernel_evidence.json"


def collect_evidence(  # noqa: PLR0913 - keyword-only: what, where, how
    *,
    program: Program,
    target: Target,
    run: Path,
    threads: int = 1,
    iterations: int = 2,
    seed: int = 0,
    timeout_s: float = 3600.0,
    progress: Callable[[str, int, int], None],
) -> KernelEvidence:
    """Traces `program` on `target` in all its SME modes; keeps every file in `run`.

    Each mode leaves `_kernels.json`, `_trace_result.json` and `_trace_outputs` of an experiment
    named after target and mode, and the whole leaves kernel_evidence.json. Raises TargetError when
    a run fails. Times of these runs are never performance.
    """
    modes = target.sme_modes()
    evidence: dict[str, ModeEvidence] = {}
    results: dict[str, RunnerResult] = {}
    for done, mode in enumerate(modes):
        progress(f"kernels with --sme {mode}", done, len(modes))
        files = experiment_files(run, program.label, f"{target.platform}_{mode}", threads)
        files.folder.mkdir(parents=True, exist_ok=True)
        request = replace(
            _request(program, files, mode),
            threads=threads,
            iterations=iterations,
            seed=seed,
            timeout_s=timeout_s,
        )
        results[mode] = target.run(request)
        evidence[mode] = read_evidence(read_kernel_trace(files.file("_kernels.json")))
    progress("kernels", len(modes), len(modes))
    gathered = gather_evidence(evidence, results, program)
    write_json(run / EVIDENCE, evidence_document(gathered))
    manifest = load_manifest(run)
    if manifest is not None:
        save_manifest(run, manifest.model_copy(update={"files": hash_files(run)}))
    return gathered


def _request(program: Program, files: ExperimentFiles, mode: str) -> RunnerRequest:
    return RunnerRequest(
        model=program.model,
        data=program.data,
        inputs=program.inputs,
        shapes=program.shapes,
        method=program.method,
        sme=mode,
        kernel_trace=files.file("_kernels.json"),
        result=files.file("_trace_result.json"),
        outputs=files.file("_trace_outputs"),
    )
