"""The runner's result file, checked field by field: it may come from a device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from etprof.base.records import CleanData, Count, Name, Named, Record, SmeInForce, read_record


class RunnerBuild(Record):
    """Version of the runner and everything it was built with."""

    version: Name
    build: CleanData


_FEATURES: Final = {
    "x86_64": "sse4.2 avx fma f16c avx2 avx_vnni avx512f avx512dq avx512bw avx512vl avx512vbmi "
    "avx512vnni avx512fp16 avx512bf16 amx_tile amx_int8 amx_bf16 amx_fp16",
    "aarch64": "asimd fp16 dotprod sve i8mm bf16 sve2 sve2p1 sme sme_i16i64 sme_f64f64 sme_i8i32 "
    "sme_f16f32 sme_b16f32 sme_f32f32 sme_fa64 sme2 sme2p1 sme_i16i32 sme_bi32i32 sme_b16b16 "
    "sme_f16f16",
}
"""Our names of the features that matter here, by architecture."""
_SYSTEM_NAMES: Final = {
    "sse4.2": "sse4_2",
    "avx512vnni": "avx512_vnni",
    "avx512fp16": "avx512_fp16",
    "avx512bf16": "avx512_bf16",
    "asimd": "advsimd",
    "fp16": "asimdhp",
    "dotprod": "asimddp",
}
"""What systems call those that have other names there as well."""


def _cpu_of(lines: list[str], architecture: str) -> dict[str, object]:
    """Model and features from lines as of Linux's /proc/cpuinfo.

    Arm kernels print no name, only who made the core and which it is. A Mac's features are lines'
    words too, named as sysctl does: `hw.optional.arm.FEAT_SME2`.
    """
    parted = (line.partition(":") for line in lines)
    fields = {name.strip(): text.strip() for name, _, text in parted}
    flags = f"{fields.get('flags', '')} {fields.get('Features', '')}".split()
    # FEAT_SME2 of a Mac is sme2, and smei8i32 of Linux is sme_i8i32.
    present = {re.sub(r"^hw\.optional\.(arm\.FEAT_)?", "", flag).lower() for flag in flags}
    maker, part_number = fields.get("CPU implementer"), fields.get("CPU part")
    arm_model = f"implementer {maker} part {part_number}" if maker and part_number else "unknown"
    features = {}
    for name in _FEATURES.get(architecture, "").split():
        aliases = {name, name.replace("sme_", "sme"), _SYSTEM_NAMES.get(name, name)}
        features[name] = not aliases.isdisjoint(present)
    return {"model_name": fields.get("model name") or arm_model, "features": features}


class Cpu(Record):
    """The CPU as the runner saw it."""

    architecture: Name
    model_name: Name | None = None
    logical_cores: Count
    features: Named[bool]

    @model_validator(mode="before")
    @classmethod
    def _read_cpuinfo(cls, value: object) -> object:
        """The runner hands on the system's own words; older ones made names of them themselves."""
        if not isinstance(value, dict) or not isinstance(value.get("cpuinfo"), list):
            return value
        lines = [line for line in value["cpuinfo"] if isinstance(line, str)]
        return value | _cpu_of(lines, str(value.get("architecture")))

    @property
    def has_sme2(self) -> bool:
        """Whether the CPU executes SME2."""
        return self.features.get("sme2", False)


class LoadTime(Record):
    """Load time, in two steps where both were measured."""

    program_ns: Count | None = None
    method_ns: Count | None = None
    together_ns: Count | None = None
    """Of both, where the steps are not known."""

    @property
    def total_ns(self) -> int | None:
        """Of both steps; None where not recorded."""
        if self.program_ns is None or self.method_ns is None:
            return self.together_ns
        return self.program_ns + self.method_ns


class Load(LoadTime):
    """Load time as our own runner measures it."""

    program_ns: Count
    method_ns: Count


class ClockQuality(Record):
    """What the runner's clock can tell apart, and what reading it takes; in ns."""

    tick_ns: Annotated[int, Field(gt=0)]
    reading_ns: Annotated[float, Field(ge=0)]


class Conditions(Record):
    """What the system did to the process while it was timed."""

    major_faults: Count
    """Pages that came from storage."""
    involuntary_switches: Count
    """The CPU was taken away for others."""
    minor_faults: Count | None = None
    """Pages that the system had to give: of memory that was not touched before, or taken anew."""
    voluntary_switches: Count | None = None
    """A thread had to wait, such as the pool's for work."""
    first_core: Count | None = None
    last_core: Count | None = None


class Memory(Record):
    """Memory in bytes."""

    rss_before_load_bytes: Count | None = None
    rss_after_load_bytes: Count | None = None
    peak_rss_bytes: Count | None = None
    pss_bytes: Count | None = None
    """Resident at the end, shared pages counted in part; None where the system does not tell."""
    planned_buffers_bytes: tuple[Count, ...] = ()

    @property
    def taken_by_load_bytes(self) -> int | None:
        """What loading the program added; None where either side of it is not known."""
        before, after = self.rss_before_load_bytes, self.rss_after_load_bytes
        return None if before is None or after is None else after - before


class SmeState(Record):
    """The SME mode in force, and the features that prove it."""

    requested: Name | None = None
    in_force: SmeInForce
    cpu_features: tuple[Name, ...] | None = None
    shown_features: tuple[Name, ...] | None = None
    """Those of the CPU's that the delegate could see."""
    svl_bits: Annotated[int, Field(gt=0, le=2048)] | None = None
    """Streaming vector length; None where the CPU has no SME, or it is not recorded."""

    @model_validator(mode="after")
    def _check_visible_features(self) -> Self:
        if self.shown_features is None or self.cpu_features is None:
            return self
        visible = set(self.shown_features)
        mode = "sme2" if "sme2" in visible else "sme1" if "sme" in visible else "off"
        if mode != self.in_force or not visible <= set(self.cpu_features):
            seen = ", ".join(sorted(visible)) or "none"
            msg = f"SME mode {self.in_force} cannot be in force where features shown are {seen}"
            raise ValueError(msg)
        return self


class Threads(Record):
    """Threads asked for and given."""

    requested: Count | None = None
    in_force: Count


class Tensor(Record):
    """An input or output of the method."""

    index: Count
    dtype: Name
    shape: list[Count]
    size_bytes: Count
    path: str | None = None
    source: str | None = None
    nonfinite_count: Count = 0


class StepTensor(Tensor):
    """An output of an inference after the first, in the order of execution."""

    step: Annotated[int, Field(gt=1)]


class Repetition(Record):
    """One generation; times in ns from its start, `token_latency_ns` from token to token."""

    prefill_ns: Annotated[Count, Field(gt=0)]
    time_to_first_token_ns: Count
    token_latency_ns: list[Count]
    total_ns: Count


class GenerationResult(Record):
    """Tokens that were generated, and the timed repetitions of it."""

    prompt_tokens: list[Count]
    tokens: list[Count]
    prefill_method: Name
    decode_method: Name
    prefilled_tokens: Count
    """Tokens of the prompt that were read at once; decode steps read the others."""
    cache_tokens: Count | None = None
    repetitions: Annotated[list[Repetition], Field(min_length=1)]
    first: Repetition | None = None
    """The first of the process, before any warm-up; None where the runner is of etprof 0.1."""

    @model_validator(mode="after")
    def _check_latency_count(self) -> Self:
        for repetition in self.repetitions:
            if len(repetition.token_latency_ns) != max(len(self.tokens) - 1, 0):
                msg = "token_latency_ns needs a time for each token after the first"
                raise ValueError(msg)
            if repetition.token_latency_ns and not sum(repetition.token_latency_ns):
                msg = "token_latency_ns: all tokens came at one moment"
                raise ValueError(msg)
        return self


class RunnerResult(Record):
    """What one launch of the runner measured; times in ns."""

    schema_version: Literal[1]
    runner: RunnerBuild
    method: Name
    cpu: Cpu
    threads: Threads
    load: Load
    first_inference_ns: Count
    warmup_latency_ns: list[Count]
    is_steady: bool | None = None
    """Whether the warm-up ended steady; None when that was not asked for."""
    latency_ns: Annotated[list[Count], Field(min_length=1)]
    """Of `Method::execute` alone; of a generation as a whole."""
    input_ns: tuple[Count, ...] = ()
    """Of giving the inputs before each inference; empty for generations and batches."""
    output_ns: tuple[Count, ...] = ()
    """Of taking the outputs after it."""
    inferences_per_sample: Annotated[int, Field(gt=0)] = 1
    """Where one inference is too short for the clock, latencies are means of several."""
    clock: ClockQuality | None = None
    conditions: Conditions | None = None
    memory: Memory
    inputs: list[Tensor]
    outputs: list[Tensor]
    """Of one inference, the first where outputs are kept in files."""
    output_step: Annotated[int, Field(gt=0)] | None = None
    """Which one of the process that is; the first is 1."""
    further_outputs: list[StepTensor] = Field(default_factory=list)
    sme: SmeState | None = None
    generation: GenerationResult | None = None

    @property
    def step(self) -> int:
        """Which inference `outputs` are of; earlier runners kept the last one's."""
        timed = len(self.latency_ns) * self.inferences_per_sample
        return self.output_step or 1 + len(self.warmup_latency_ns) + timed

    def output_files(self, folder: Path) -> dict[int, list[tuple[Tensor, Path]]]:
        """Returns the outputs with their files in `folder`, by the inference that they are of."""
        files: dict[int, list[tuple[Tensor, Path]]] = {
            self.step: [(output, folder / f"output_{output.index}.bin") for output in self.outputs]
        }
        for output in self.further_outputs:
            file = folder / f"output_{output.index}_step_{output.step}.bin"
            files.setdefault(output.step, []).append((output, file))
        return files


def read_result(path: Path) -> RunnerResult:
    """Reads the result file; raises InputFileError that names the file and the field."""
    return read_record(RunnerResult, path, way_out="run the model again")
