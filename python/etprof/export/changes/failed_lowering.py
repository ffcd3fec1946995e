"""What a backend's passes and partitioners raise: the cause, and the operator that was at work."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

import torch

from etprof.base.errors import ExportError, first_line
from etprof.export import operators
from etprof.run.program import Fallback

if TYPE_CHECKING:
    from collections.abc import Mapping

REWRITE: Final = "write that part of the model otherwise"


class FailedLoweringError(ExportError):
    """A model that a backend's partitioner or passes raise at, where they should leave operators outside."""

    def __init__(self, backend: str, error: BaseException) -> None:
        """Keeps what was raised, and the operator that was at work, if there was one."""
        super().__init__(
            f"cannot lower the model for backend {backend!r}: {blame(error)}; {REWRITE}, or try another "
            "--dtype or --backend"
        )
        self.node, self.reason = failing_node(error), root_cause(error)

    def fallbacks(
        self, programs: Mapping[str, torch.export.ExportedProgram]
    ) -> dict[str, Fallback]:
        """Returns what to leave outside the delegate, by the name that it has in the traced `programs`.

        Nothing where no traced operator was at work.
        """
        traced = None if self.node is None else operators.find_traced(self.node)
        if self.node is None or traced is None:
            return {}
        name = operators.name_operator(
            operators.target_name(self.node), operators.find_origin(self.node)
        )
        for method, program in programs.items():
            if any(node.name == traced[0] for node in program.graph.nodes):
                return {traced[0]: Fallback(method=method, name=name, reason=self.reason)}
        return {}


def blame(error: BaseException) -> str:
    """Returns the root cause and the operator that was at work, with its module and source line.

    The operator is the node of a graph that the innermost function which holds one was called for.
    """
    cause = root_cause(error)
    node = failing_node(error)
    if node is None:
        return cause
    kind = f"{operators.target_name(node)} ({node.name})"
    return f"{cause}; at {operators.name_operator(kind, operators.find_origin(node))}"


def failing_node(error: BaseException) -> torch.fx.Node | None:
    """Returns the node that was at work; None where the traceback has none."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for cause in reversed(chain):
        frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
        for frame in reversed(frames):
            candidates = (frame.f_locals.get(name) for name in ("node", "n"))
            for node in candidates:
                if isinstance(node, torch.fx.Node) and node.op == "call_function":
                    return node
    return None


def root_cause(error: BaseException) -> str:
    """Returns the first line of the exception that started a chain of them."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
