"""A target whose runner is simulated: it writes what etprof-runner writes, and refuses what it does.

`tests/integration/test_world.py` asks both the same and compares the shapes of their answers.
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import TYPE_CHECKING

from etprof.backends.kernel_names import size_arguments, tile_of
from etprof.base.atomic import write_bytes, write_json, write_text
from etprof.base.errors import TargetError
from etprof.run.runner_result import read_result
from etprof.targets.device_lock import this_host
from etprof.targets.state import TargetState
from tests.world.etdumps import runner_etdump
from tests.world.spec import RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest

OUTPUT_BYTES = 40
FEATURES = {"off": {}, "sme1": {"sme": True}, "sme2": {"sme": True, "sme2": True}}


class SimTarget:
    """A machine as its spec says; `requests` is the log of all that reached its runner."""

    def __init__(self, spec: RunSpec | None = None, **_: object) -> None:
        self.spec = spec or RunSpec()
        self.platform = self.spec.capabilities.platform
        self.requests: list[RunnerRequest] = []
        self.temperatures_c: list[float] = []
        """What its sensor will say, one after the other; then it has none."""
        self._program = self.spec
        self._random = random.Random(self.spec.seed)  # noqa: S311 - noise, no secrets
        self._run_factor = self._factor(self.spec.noise.run)

    def describe(self) -> dict[str, object]:
        return {"system": "Simulated"}

    def device(self) -> MeasuredDevice:
        return this_host()

    def sme_modes(self) -> tuple[str, ...]:
        return self.spec.capabilities.modes

    def can_count(self) -> bool:
        return self.spec.capabilities.counts

    def counts_any_runner(self) -> bool:
        return False

    def has_clock(self) -> bool:
        return self.spec.capabilities.counts

    def default_threads(self) -> int:
        return 1

    def read_state(self) -> TargetState:
        if self.temperatures_c:
            return TargetState(temperatures_c={"cpu": self.temperatures_c.pop(0)})
        return TargetState()

    def runner_file(self, request: RunnerRequest) -> Path | None:
        return request.runner

    def run(self, request: RunnerRequest) -> RunnerResult:
        number = len(self.requests)
        self.requests.append(request)
        self._refuse(request, number)
        mode = self.spec.in_force(request.sme)
        self._program = program = self.spec.of(request.model.stem)
        iterations = request.iterations or self.spec.samples
        etdump = None
        if request.etdump is not None:
            etdump = runner_etdump(tuple(program.operators[mode]), request.warmup, iterations)
            write_bytes(request.etdump, etdump)
        if request.outputs is not None:
            default = bytes(range(OUTPUT_BYTES))
            write_bytes(request.outputs / "output_0.bin", _output(program, mode, request, default))
        if request.kernel_trace is not None:
            write_json(request.kernel_trace, self._kernel_trace(request, mode, iterations))
        latencies = self._latencies(mode, number, iterations)
        document = self.result(request, mode, latencies, number)
        write_json(request.result, document)
        return read_result(request.result)

    def _refuse(self, request: RunnerRequest, number: int) -> None:
        """Raises what etprof-runner's refusal, or the failure that the spec asks for, becomes."""
        spec, asked = self.spec, request.sme
        modes = ("off", "sme1", "sme2")
        best = spec.capabilities.sme
        if asked != "auto" and modes.index(asked) > modes.index(best):
            msg = f"--sme {asked}: this CPU has no {asked.upper()}; use --sme off, or a CPU with it"
            raise self._said(request, msg)
        if request.kernel_trace is not None and not spec.capabilities.counts:
            msg = "--kernel-trace is given, but this runner has no trace"
            raise TargetError(msg)
        if request.etdump is not None and not spec.capabilities.event_tracer:
            msg = "--etdump is given, but this runner is built without event tracer"
            raise TargetError(msg)
        for path in (request.model, *request.inputs):
            if not path.is_file():
                msg = f"{path} does not exist"
                raise TargetError(msg)
        has_method = spec.methods is None or request.method in spec.methods
        if request.generation is None and not has_method:
            msg = f"the program has no method {request.method!r}"
            raise self._said(request, msg)
        failure = spec.failure
        instruments = [
            name
            for name in ("etdump", "kernel_trace", "outputs")
            if getattr(request, name) is not None
        ]
        wanted = failure.instrument
        if (
            number in failure.launches
            or (failure.sme is not None and asked == failure.sme)
            or (wanted is not None and wanted in (instruments or ["none"]))
        ):
            msg = f"launch {number} failed; try again"
            raise TargetError(msg)

    @staticmethod
    def _said(request: RunnerRequest, message: str) -> TargetError:
        """What a runner that fails prints is kept beside the launch."""
        write_text(request.words, f"etprof-runner: {message}\n")
        return TargetError(message)

    def _threads(self, request: RunnerRequest) -> int:
        asked = request.threads or 1
        return min(asked, self.spec.capabilities.most_threads or asked)

    def _factor(self, spread: float) -> float:
        return max(0.1, self._random.gauss(1.0, spread)) if spread else 1.0

    def _latencies(self, mode: str, number: int, iterations: int) -> list[int]:
        noise = self.spec.noise
        launch = self._run_factor * self._factor(noise.block) * (1 + noise.drift * number)
        found = []
        for number_of_call in range(iterations):
            slow = self._random.random() < noise.outlier_share
            factor = launch * self._factor(noise.call) * (noise.outlier_factor if slow else 1.0)
            factor *= noise.slow_start if 2 * number_of_call < iterations else 1.0
            found.append(round(self._program.execute_ns(mode) * factor))
        return found

    def result(
        self, request: RunnerRequest, mode: str, latencies: list[int], number: int
    ) -> dict[str, object]:
        """What the runner writes of a launch."""
        traced = request.kernel_trace is not None or self.spec.capabilities.only_counts
        one = latencies[0]
        passes = {"etdump": request.etdump, "kernel_trace": request.kernel_trace}
        return {
            **self._head(request, mode, traced=traced),
            "model": {"path": str(request.model), "size_bytes": request.model.stat().st_size},
            "data_path": None if request.data is None else str(request.data),
            "pass": next((name for name, path in passes.items() if path is not None), "timing"),
            "cpu": {
                "architecture": "aarch64",
                "logical_cores": 8,
                "cpuinfo": [
                    "model name\t: Simulated",
                    " ".join(["Features\t: asimddp", *FEATURES[self.spec.capabilities.sme]]),
                ],
            },
            "seed": request.seed,
            "inputs": [_tensor(0, [1, 3, 32, 32], None) | {"source": "seeded"}],
            "load": {"program_ns": 1000, "method_ns": 90_000 + 1000 * number, "mode": "file"},
            "first_inference_ns": 3 * one,
            "warmup_latency_ns": [2 * one] * request.warmup,
            "is_steady": None,
            "latency_ns": latencies,
            "input_ns": [200] * len(latencies),
            "output_ns": [50] * len(latencies),
            "inferences_per_sample": 1,
            "clock": {"tick_ns": 1, "reading_ns": 20.5},
            "conditions": {
                "minor_faults": 0,
                "major_faults": 0,
                "voluntary_switches": 0,
                "involuntary_switches": 0,
                "first_core": 0,
                "last_core": 0,
            },
            "iterations": len(latencies),
            "memory": {
                "rss_before_load_bytes": 2**20,
                "rss_after_load_bytes": 2**21,
                "peak_rss_bytes": 2**22 + 2**20 * number,
                "pss_bytes": 2**20,
                "planned_buffers_bytes": [4096],
            },
            "output_step": 1 if request.outputs else 1 + request.warmup + len(latencies),
            "outputs": [_tensor(0, [1, 10], request.outputs) | {"nonfinite_count": 0}],
            "further_outputs": [],
        }

    def _head(self, request: RunnerRequest, mode: str, *, traced: bool) -> dict[str, object]:
        """What a result and a kernel trace have in common."""
        names = sorted(FEATURES[self.spec.capabilities.sme])
        return {
            "schema_version": 1,
            "runner": {
                "version": "0.1.0",
                "build": {
                    "compiler": "GNU",
                    "compiler_version": "12.2.0",
                    "flags": "-O3 -DNDEBUG",
                    "build_type": "Release",
                    "system": "Linux",
                    "processor": "aarch64",
                    "sanitizers": "",
                    "executorch_version": "1.5.1",
                    "provider": "wheel",
                    "sme": "auto",
                    "sme_compiled_out": False,
                    "trace": traced,
                    "event_tracer": self.spec.capabilities.event_tracer,
                    "executorch_revision": "0" * 40,
                    "xnnpack_log": False,
                    "ndk_version": "",
                    "sources": [],
                    "symbol_check": None,
                },
            },
            "method": request.method,
            "threads": {"requested": request.threads, "in_force": self._threads(request)},
            "sme": {
                "requested": request.sme,
                "in_force": mode,
                "cpu_features": names,
                "shown_features": sorted(FEATURES[mode]),
                "svl_bits": None
                if self.spec.capabilities.sme == "off"
                else request.sme_vector_bits or 512,
            },
        }

    def _kernel_trace(
        self, request: RunnerRequest, mode: str, iterations: int
    ) -> dict[str, object]:
        """The marks of every inference, and the calls before them."""
        program = self.spec.of(request.model.stem)
        operators = program.operators[mode]
        kernels = sorted({name for each in operators for name in each.kernels})
        marks, times_ns, now_ns = "E", [0], 0
        labels, calls = ["Method::execute"], list[list[int]]()
        groups = groupby(operators, key=lambda each: (each.instruction, each.is_delegated))
        for (_, is_delegated), group in groups:
            names = list(group)
            marks += "DB" if is_delegated else ""
            times_ns += [now_ns, now_ns] if is_delegated else []
            for each in names:
                begin_ns, now_ns = now_ns, now_ns + each.us * 1000
                marks += "PpB" if is_delegated else "Ee"
                times_ns += [begin_ns, now_ns, now_ns][: 3 if is_delegated else 2]
                calls += [
                    [len(marks) - 1, kernels.index(name), *_calls(name, count, request)]
                    for name, count in each.kernels.items()
                ]
            marks += "d" + "N" * len(names) if is_delegated else ""
            times_ns += [now_ns, *(each.us * 1000 for each in names)] if is_delegated else []
            labels += [each.label for each in names]
        length = program.execute_ns(mode)
        phases = ["First", *["Warmup"] * request.warmup, *["Execute"] * iterations]
        return {
            **self._head(request, mode, traced=True),
            "schema_version": 2,
            "model": {"path": str(request.model), "size_bytes": request.model.stat().st_size},
            "kernels": kernels,
            "labels": labels,
            "load": {"calls": []},
            "executions": [
                {
                    "phase": phase, "start_ns": i * length, "marks": marks + "e",
                    "times_ns": [*times_ns, length], "labels": [*range(len(labels))],
                    "calls": calls,
                }
                for i, phase in enumerate(phases)
            ],
        }  # fmt: skip


def _calls(name: str, count: int, request: RunnerRequest) -> list[int]:
    """A microkernel's calls and sizes: `count` of a tile's rows each at 512 bits, 16 columns."""
    sizes = [16] * len(size_arguments(name))
    tile, longest = (tile_of(name, bits) for bits in (request.sme_vector_bits or 512, 512))
    if tile and longest:
        count *= longest.rows // tile.rows
        sizes[0] = tile.rows
    return [count, *sizes]


def _tensor(index: int, shape: list[int], folder: object) -> dict[str, object]:
    size_bytes = 4
    for each in shape:
        size_bytes *= each
    path = None if folder is None else f"{folder}/output_{index}.bin"
    return {
        "index": index, "dtype": "float32", "shape": shape, "size_bytes": size_bytes, "path": path,
    }  # fmt: skip


def _output(program: RunSpec, mode: str, request: RunnerRequest, default: bytes) -> bytes:
    """What a launch computes in its mode, or in its mode at its vector length."""
    of_length = f"{mode}_{request.sme_vector_bits}"
    return program.outputs.get(of_length, program.outputs.get(mode, default))
