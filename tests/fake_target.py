"""A target that answers at once, for tests of what surrounds a measurement.

It stands in where a real runner cannot be made to fail on demand; everything else is tested with
the real one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from etprof.base.atomic import write_bytes, write_json
from etprof.base.errors import TargetError
from etprof.run.runner_result import GenerationResult, Repetition, RunnerResult, SmeState
from etprof.targets.device_lock import this_host
from etprof.targets.state import TargetState
from tests.known_etdumps import runner_etdump

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest

MS = 1_000_000


class FakeTarget:
    """Fails at launches by number or SME mode; the latency is 1000 ns + number of the launch."""

    platform = "linux"

    def __init__(
        self,
        failing: Collection[int] = (),
        *,
        failing_sme: str = "",
        sme: object = None,
        **build: bool,
    ) -> None:
        self.failing, self.failing_sme = failing, failing_sme
        self.build, self.sme = build, sme
        self.requests: list[RunnerRequest] = []

    def describe(self) -> dict[str, object]:
        return {"system": "Fake"}

    def device(self) -> MeasuredDevice:
        return this_host()

    def sme_modes(self) -> tuple[str, ...]:
        return ("auto",)

    def can_count(self) -> bool:
        return False

    def default_threads(self) -> int:
        return 1

    def read_state(self) -> TargetState:
        return TargetState()

    def runner_file(self, request: RunnerRequest) -> Path | None:
        return request.runner

    def run(self, request: RunnerRequest) -> RunnerResult:
        number = len(self.requests)
        self.requests.append(request)
        if number in self.failing or request.sme == self.failing_sme:
            msg = f"launch {number} failed; try again"
            raise TargetError(msg)
        document = result_document(1000 + number, **self.build)
        document["sme"] = self.sme
        write_json(request.result, document)
        if request.etdump is not None:
            write_bytes(request.etdump, runner_etdump())
        return RunnerResult.model_validate_json(json.dumps(document))


class GeneratingTarget(FakeTarget):
    """A fake that generates 5 6 7 8: with SME2 in half the time, and another last token."""

    def __init__(self, last: int = 9) -> None:
        super().__init__()
        self.last = last

    def run(self, request: RunnerRequest) -> RunnerResult:
        result = super().run(request)
        if request.generation is None:
            return result
        with_sme2 = request.sme == "sme2"
        unit = MS if with_sme2 else 2 * MS
        repetition = Repetition(
            prefill_ns=3 * unit,
            time_to_first_token_ns=4 * unit,
            token_latency_ns=[unit, unit, 2 * unit],
            total_ns=8 * unit,
        )
        generation = GenerationResult(
            prompt_tokens=list(request.generation.prompt_tokens),
            tokens=[5, 6, 7, self.last if with_sme2 else 8],
            prefill_method="prefill",
            decode_method="decode",
            prefilled_tokens=2,
            repetitions=[repetition] * 2,
        )
        sme = SmeState.model_validate({"in_force": request.sme.replace("auto", "off")})
        return result.model_copy(update={"generation": generation, "sme": sme})


def result_document(latency_ns: int, **build: bool) -> dict[str, object]:
    """A result file of the runner with 20 equal latencies; `build` is what it says of itself."""
    return {
        "schema_version": 1,
        "runner": {"version": "0.1.0", "build": {"compiler": "GNU", **build}},
        "method": "forward",
        "cpu": {"architecture": "x86_64", "logical_cores": 2, "features": {"avx2": True}},
        "threads": {"requested": 1, "in_force": 1},
        "load": {"program_ns": 10, "method_ns": 90},
        "first_inference_ns": 5000,
        "warmup_latency_ns": [2000],
        "latency_ns": [latency_ns] * 20,
        "memory": {"peak_rss_bytes": 2**20, "planned_buffers_bytes": [64]},
        "inputs": [],
        "outputs": [],
    }
