"""Runners beside SimTarget's: one that generates tokens, and the least that a runner ever wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from etprof.targets.request import RunnerRequest

MS = 1_000_000


class GeneratingTarget(SimTarget):
    """Generates 5 6 7 8: with SME2 in half the time, and another last token."""

    def __init__(self, last: int = 9) -> None:
        super().__init__(plain(methods=None))
        self.last = last

    def result(
        self, request: RunnerRequest, mode: str, latencies: list[int], number: int
    ) -> dict[str, object]:
        document = super().result(request, mode, latencies, number)
        if request.generation is None:
            return document
        with_sme2 = request.sme == "sme2"
        unit = MS if with_sme2 else 2 * MS
        repetition = {
            "prefill_ns": 3 * unit,
            "time_to_first_token_ns": 4 * unit,
            "token_latency_ns": [unit, unit, 2 * unit],
            "total_ns": 8 * unit,
        }
        generation = {
            "prompt_tokens": list(request.generation.prompt_tokens),
            "tokens": [5, 6, 7, self.last if with_sme2 else 8],
            "prefill_method": "prefill",
            "decode_method": "decode",
            "prefilled_tokens": 2,
            "repetitions": [repetition] * 2,
            "first": {**repetition, "time_to_first_token_ns": 10 * unit},
        }
        return {**document, "generation": generation}


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
