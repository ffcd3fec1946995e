"""How a model is lowered, beyond its precision and backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_PLANNERS = ("greedy", "naive")
PRECISION_TYPES = ("fp32", "static_quant", "dynamic_quant")


@dataclass(frozen=True)
class ExportOptions:
    """Every choice that changes the program; recorded in the export manifest."""

    weights: Path | None = None
    """A checkpoint of the model; without one its weights are random."""
    operators: tuple[str, ...] = ()
    """Partitioner rules to use, such as `linear`; none means all."""
    config_precisions: tuple[str, ...] = ()
    """Kinds of operators to delegate, of PRECISION_TYPES; none means all."""
    per_op_mode: bool = False
    """One delegate call per operator: less memory, more calls."""
    external_constants: bool = False
    """Weights in a `.ptd` file beside the program."""
    memory_planning: str = "greedy"
    """`greedy` lets tensors share memory; `naive` gives each its own."""
    channels_last: bool = False
    """Four-dimensional inputs are stored as NHWC, XNNPACK's own layout."""
    bundle: bool = False
    """A bundled program too, with the inputs and reference outputs inside."""
    graph: bool = False
    """The lowered graphs as text too, with those inside the delegates."""
    trace: bool = False
    """Drawings too: where the export's time goes, and the memory plan."""

    def check(self, backend: str) -> None:
        """Raises UsageError for a combination without sense."""
        _check_choice("--memory-planning", (self.memory_planning,), MEMORY_PLANNERS)
        _check_choice("--config-precisions", self.config_precisions, PRECISION_TYPES)
        asks_partitioner = self.operators or self.config_precisions or self.per_op_mode
        if backend != "xnnpack" and asks_partitioner:
            msg = (
                f"--operators, --config-precisions and --per-op need backend xnnpack, not {backend}"
            )
            raise UsageError(msg)
        if self.bundle and self.channels_last:
            msg = "--bundle and --channels-last: ExecuTorch's bundles hold no NHWC inputs; drop one"
            raise UsageError(msg)


def _check_choice(flag: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for value in given:
        if value not in known:
            msg = f"{flag} {value!r} is unknown; choose from {', '.join(known)}"
            raise UsageError(msg)
