"""Programs and traced runs that the emulator's tests share; each is made once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etprof.analysis.assessment import Assessment, assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.evidence import ModeEvidence, read_evidence
from etprof.export.request import ExportRequest
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.kernel_trace import KernelTrace, read_kernel_trace
from etprof.run.load import Run
from etprof.run.program import Program, describe_program
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.targets import Target
    from tests.integration.conftest import Exports

PROGRAMS = {
    "toy_fp32": ("toy_cnn", "fp32"),
    "toy_fp16": ("toy_cnn", "fp16"),
    "toy_int8": ("toy_cnn", "int8"),
    "toy_int8_dynamic": ("toy_cnn", "int8_dynamic"),
    "mobilenet_v2": ("mobilenet_v2", "fp32"),
}


@dataclass(frozen=True)
class Setup:
    """What to run and how."""

    program: str
    sme: str = "auto"
    cpu: str = "max"
    threads: int = 1
    repetition: int = 0
    svl_bits: int | None = None
    debugger: str | None = None


@dataclass
class Laboratory:
    """Exports programs and runs them under emulation, each combination once."""

    folder: Path
    exports: Exports
    programs: dict[str, Program] = field(default_factory=dict)
    traces: dict[Setup, KernelTrace] = field(default_factory=dict)

    def program(self, name: str) -> Program:
        """Exports one of PROGRAMS."""
        if name not in self.programs:
            model, precision = PROGRAMS[name]
            files = self.exports.get(ExportRequest(model, precision))
            self.programs[name] = describe_program(files.pte)
        return self.programs[name]

    def request(self, setup: Setup) -> RunnerRequest:
        """Returns the traced run of `setup`."""
        program = self.program(setup.program)
        run = self.folder / f"run{len(self.traces)}"
        return RunnerRequest(
            model=program.model,
            inputs=program.inputs,
            iterations=1,
            threads=setup.threads,
            sme=setup.sme,
            sme_vector_bits=setup.svl_bits,
            kernel_trace=run / "kernels.json",
            result=run / "result.json",
        )

    def trace(self, setup: Setup) -> KernelTrace:
        """Runs `setup` and reads what was traced."""
        if setup not in self.traces:
            request = self.request(setup)
            request.result.parent.mkdir(exist_ok=True)
            EmulatorTarget(setup.cpu, debugger=setup.debugger).run(request)
            assert request.kernel_trace is not None
            self.traces[setup] = read_kernel_trace(request.kernel_trace)
        return self.traces[setup]

    def evidence(self, program: str, sme: str, **changes: object) -> ModeEvidence:
        """Runs `program` in one mode and reads the evidence."""
        return read_evidence(self.trace(replace(Setup(program, sme), **changes)))  # type: ignore[arg-type]


def untimed(trace: KernelTrace) -> dict[str, object]:
    """Returns all of a trace but when it was, and what counted."""
    document = trace.model_dump(mode="json", exclude={"counted_by"})
    for row in (*document["executions"], *document["operators"]):
        row.pop("start_ns")
        row.pop("duration_ns")
    return document


def operator_calls(trace: KernelTrace) -> list[tuple[str, dict[str, tuple[int, ...]]]]:
    """Returns each operator with its calls of every microkernel."""
    return [(o.name, {k.name: k.execution_calls for k in o.kernels}) for o in trace.operators]


def read_json(path: Path) -> dict[str, object]:
    """Reads a JSON document."""
    document: dict[str, object] = json.loads(path.read_text())
    return document


def assess_kernels(program: Program, target: Target, run: Path) -> Assessment:
    """What every SME mode of `target` runs and computes, by the pipeline that all commands use."""
    measured = measure(
        program=program,
        target=target,
        run=run,
        planned=plan(
            [
                Experiment(name=mode, sme=mode, warmup=0, iterations=2)
                for mode in target.sme_modes()
            ],
            Settings(blocks=0, operator_iterations=1, kernels=True),
            target,
        ),
        progress=lambda *_: None,
    )
    assert measured.errors == []
    return assess_run(analyze_run(Run.load(run)))
