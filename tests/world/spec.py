"""What is measured in the simulated world: described once, so that every true value is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CALL_US = 1
"""What a call of a portable kernel costs beside the kernel."""
SME2_KERNEL, SME1_KERNEL = (
    f"kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_{isa}_mopa" for isa in ("sme2", "sme")
)


@dataclass(frozen=True)
class Operator:
    """One operator as a trace names it; `kernels` are calls of microkernels in an execution."""

    label: str
    us: int
    instruction: int = 0
    kernels: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def is_delegated(self) -> bool:
        """Whether it is in a delegate's call; a portable kernel is in a call of its own."""
        return not self.label.startswith("native_call_")


PLAIN = (
    Operator("Transpose (ND, X32) #1", 10),
    Operator("Convolution (NHWC, F32) IGEMM #1", 400),
    Operator("native_call_mean.out", 30, 1),
    Operator("Fully Connected (NC, F32) GEMM #1", 100, 2),
)


def _packed(kernel: str, divisor: int) -> tuple[Operator, ...]:
    return (
        PLAIN[0],
        Operator("Convolution (NHWC, PF32) IGEMM #1", 400 // divisor, 0, {kernel: 7}),
        PLAIN[2],
        Operator("Fully Connected (NC, PF32) GEMM #1", 100 // divisor, 2, {kernel: 2}),
    )


@dataclass(frozen=True)
class Capabilities:
    """What the simulated machine and its runner can do."""

    platform: str = "linux"
    sme: str = "sme2"
    """The best that the CPU has: sme2, sme1 or off."""
    event_tracer: bool = True
    counts: bool = True
    """Whether a runner that counts microkernels is there."""
    most_threads: int | None = None
    """More are asked for in vain."""
    only_counts: bool = False
    """Whether it is the only one, and so the one that times."""
    told: tuple[str, ...] | None = None
    """The modes that the machine says it has; None: those of its CPU."""

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that a user may ask for."""
        if self.told is not None:
            return self.told
        every = ("sme2", "sme1", "off")
        return ("auto",) if self.sme == "off" else every[every.index(self.sme) :]


@dataclass(frozen=True)
class Noise:
    """Relative spreads of a run, a launch and a call; a drift a launch; rare slow calls."""

    run: float = 0.0
    block: float = 0.0
    call: float = 0.01
    drift: float = 0.0
    outlier_share: float = 0.0
    outlier_factor: float = 10.0
    slow_start: float = 1.0
    """Times which the first half of a launch's calls takes."""
    wraps_at: int | None = None
    """Stamps of an ETDump are counted modulo this."""


@dataclass(frozen=True)
class Failure:
    """Launches that fail: by number, by mode, by what they are to write."""

    launches: frozenset[int] = frozenset()
    sme: str | None = None
    instrument: str | None = None
    """etdump, kernel_trace, outputs or none."""


@dataclass(frozen=True)
class RunSpec:
    """A program on a machine: operators in each mode, noise, and what fails."""

    operators: Mapping[str, Sequence[Operator]] = field(
        default_factory=lambda: {
            "sme2": _packed(SME2_KERNEL, 4),
            "sme1": _packed(SME1_KERNEL, 2),
            "off": PLAIN,
        }
    )
    capabilities: Capabilities = Capabilities()
    noise: Noise = Noise()
    failure: Failure = Failure()
    methods: Sequence[str] | None = ("forward",)
    """Of the program; None: whatever is asked for."""
    samples: int = 20
    """Iterations of a launch that is asked for seconds."""
    outputs: Mapping[str, bytes] = field(default_factory=dict)
    """Bytes of the one output by mode, or such as `sme2_128`, where they are not the usual ones."""
    programs: Mapping[str, RunSpec] = field(default_factory=dict)
    """Operators and outputs of further programs, by their files' names without ending."""
    seed: int = 0

    def in_force(self, asked: str) -> str:
        """The mode that a launch runs in."""
        return self.capabilities.sme if asked == "auto" else asked

    def of(self, program: str) -> RunSpec:
        """What that program does; this one's for all that are not named."""
        return self.programs.get(program, self)

    def execute_ns(self, mode: str) -> int:
        """The true length of one execution."""
        operators = self.operators[mode]
        portable = sum(not each.is_delegated for each in operators)
        return 1000 * (sum(each.us for each in operators) + portable * CALL_US)


def plain(
    *launches: int,
    sme: str | None = None,
    methods: Sequence[str] | None = ("forward",),
    **more: object,
) -> RunSpec:
    """A program of one operator: launch n takes 1000 ns + n; those named, or of `sme`, fail.

    Its machine runs every mode alike, tells none and counts nothing; `more` are capabilities.
    """
    operator = Operator("Convolution (NHWC, F32) IGEMM #1", 1)
    known: dict[str, object] = {"counts": False, "told": ("auto",), **more}
    return RunSpec(
        operators=dict.fromkeys(("sme2", "sme1", "off"), (operator,)),
        capabilities=Capabilities(**known),  # type: ignore[arg-type]
        noise=Noise(call=0.0, drift=0.001),
        failure=Failure(launches=frozenset(launches), sme=sme),
        methods=methods,
    )
