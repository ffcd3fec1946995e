"""Operators that a runtime refuses: which they are, and that they stay outside the delegate.

A partitioner takes operators that its delegate cannot make a graph of; that shows when the program
is loaded. The runtime's error has the number of a node or value of the delegate's graph, or of an
instruction of the method.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from etprof.backends.registry import backend_of
from etprof.base.errors import ExportError
from etprof.base.units import first_texts
from etprof.export import operators, upstream
from etprof.export.changes.failed_lowering import REWRITE
from etprof.run.program import Fallback

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from etprof.export.lowering import LoweredProgram

MOST_FALLBACKS: Final = 16
"""Operators of one model that are left outside one after the other; then it is given up."""
_SHOWN: Final = 4
"""Operators that a message names."""
_MOST_UNNAMED: Final = 4
"""Operators of a delegate call that stay outside together, where nothing says which one is refused."""
_EXPECTED: Final = re.compile(r"Expected shape \((\d+(?:, ?\d+)*)\)")
_INSTRUCTION: Final = re.compile(r"failed at instruction (?:\d+:)?(\d+)")


class RefusedProgramError(ExportError):
    """A program that the runtime does not load, or that it does not execute."""

    def __init__(self, method: str, reason: str) -> None:
        """Keeps what the runtime said of `method`."""
        way_out = (
            "export it for another backend, such as --backend portable, or in another precision"
        )
        super().__init__(
            f"ExecuTorch's runtime cannot execute method {method!r}: {reason}; {way_out}"
        )
        self.method, self.reason = method, reason


class MissingKernelError(ExportError):
    """A program with operators outside the delegates that no kernel of ExecuTorch computes."""

    def __init__(self, method: str, kernels: Sequence[str]) -> None:
        """Keeps the kernels that `method` needs, such as `aten::bucketize.Tensor_out`."""
        super().__init__(
            f"method {method!r} needs operators that ExecuTorch has no kernel for: "
            f"{', '.join(kernels)}; {REWRITE}"
        )
        self.method, self.kernels = method, tuple(kernels)


def explain_missing(error: MissingKernelError, lowered: LoweredProgram) -> ExportError:
    """Returns the error that names the operators, their modules and lines; as it is without any."""
    kinds = {kernel.partition("::")[2].partition(".")[0] for kernel in error.kernels}
    names = [
        operators.name_operator(operator.operator, operator.origin)
        for operator in lowered.methods[error.method].operators
        if operator.delegate is None and kinds & set(operator.operator.split("."))
    ]
    if not names:
        return error
    return ExportError(
        f"ExecuTorch {upstream.EXECUTORCH_VERSION} has no kernel for "
        f"{', '.join(first_texts(names, _SHOWN))} in method {error.method!r}; {REWRITE}"
    )


def find_fallbacks(error: RefusedProgramError, lowered: LoweredProgram) -> dict[str, Fallback]:
    """Returns what to leave outside the delegate, by the traced operators' names; maybe nothing."""
    found = {}
    for node in _refused_nodes(error, lowered):
        traced = operators.find_traced(node)
        found[traced[0] if traced else node.name] = describe_fallback(node, error)
    return found


def describe_fallback(node: torch.fx.Node, error: RefusedProgramError) -> Fallback:
    """Says which operator a node is, where it comes from, and why it stays outside."""
    return Fallback(
        method=error.method,
        name=operators.name_operator(operators.target_name(node), operators.find_origin(node)),
        reason=error.reason,
    )


def _refused_nodes(error: RefusedProgramError, lowered: LoweredProgram) -> Iterator[torch.fx.Node]:
    for delegate in lowered.methods[error.method].delegates:
        exporter = backend_of(delegate.backend).exporter()
        nodes = exporter.read_delegate(delegate.blob, delegate.nodes, operators.is_quantize)
        names = {
            name for node in exporter.find_refused(error.reason, nodes) for name in node.operators
        }
        refused = [node for node in delegate.nodes if node.name in names]
        yield from refused
        if refused:
            return
    yield from _failed_delegate(error, lowered)


def _failed_delegate(
    error: RefusedProgramError, lowered: LoweredProgram
) -> Iterator[torch.fx.Node]:
    """Yields the operators of the delegate call that failed, where its error names none of them.

    XNNPACK gives no number when the shapes of a graph do not fit. One of a few operators is at fault
    then, of a large call one whose result has the shape that did not fit. Else it would be a guess,
    and most of a model would run on portable kernels.
    """
    match = _INSTRUCTION.search(error.reason)
    for delegate in lowered.methods[error.method].delegates if match else ():
        nodes = [node for node in delegate.nodes if not operators.is_quantize(node)]
        if len(nodes) > _MOST_UNNAMED and (expected := _EXPECTED.search(error.reason)):
            shape = [int(size) for size in expected[1].split(",")]
            nodes = [node for node in nodes if operators.shape_of(node) == shape]
        if match and delegate.instruction == int(match[1]) and len(nodes) <= _MOST_UNNAMED:
            yield from nodes


def explain_refusal(
    error: RefusedProgramError, lowered: LoweredProgram, fallbacks: Mapping[str, Fallback]
) -> ExportError:
    """Returns the error that names the operator, its module and its line, and what to do."""
    refused = [fallback.name for fallback in fallbacks.values()]
    if not refused:
        refused = list(_failed_kernels(error, lowered))
        way_out = f"ExecuTorch {upstream.EXECUTORCH_VERSION} has no kernel that takes it; {REWRITE}"
    else:
        way_out = f"leave --strict out and it stays outside the delegate, or {REWRITE}"
    if not refused:
        return error
    return ExportError(
        f"ExecuTorch's runtime refuses {', '.join(refused)} in method {error.method!r}: "
        f"{error.reason}; {way_out}"
    )


def _failed_kernels(error: RefusedProgramError, lowered: LoweredProgram) -> Iterator[str]:
    """Yields the operator outside the delegates whose instruction failed, if there is one."""
    match = _INSTRUCTION.search(error.reason)
    if match is None:
        return
    for operator in lowered.methods[error.method].operators:
        if operator.instruction == int(match[1]) and operator.delegate is None:
            yield operators.name_operator(operator.operator, operator.origin)
