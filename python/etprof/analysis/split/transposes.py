"""Finds transposes that undo each other: by permutations and data flow, not by guessing.

Two transposes are a pair when the second reads what the first wrote, through nothing but operators
that treat every element alike, and its permutation is the inverse of the first one's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.backends.portable import parse_kernel_name
from etprof.backends.registry import backend_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from etprof.run.delegation import Delegate, GraphOperator, MethodReport

Location = tuple[int | None, int | None]
"""Instruction of the program, and the index among the delegate's nodes; None outside delegates."""

_PLAIN_COPIES: Final = frozenset(
    {"alias_copy", "clone", "_clone_dim_order", "_to_copy", "_to_dim_order_copy"}
)


@dataclass(frozen=True)
class InversePair:
    """Two transposes of which the second undoes the first."""

    first: Location
    second: Location
    permutation: tuple[int, ...]
    """Of the first; that of the second is its inverse."""
    between: int
    """Elementwise operators between them."""
    is_shared: bool
    """Whether others read the first one's result too, the caller perhaps: only the second can go."""


@dataclass(frozen=True)
class _FlowStep:
    """One operator with what it reads and writes."""

    location: Location
    inputs: tuple[object, ...]
    output: object
    permutation: tuple[int, ...] | None
    is_neutral: bool
    """Whether it treats every element alike, whatever the layout."""
    readers: int | None
    """All who read its output, the caller included; None where the export did not say."""


def find_inverse_pairs(report: MethodReport) -> tuple[InversePair, ...]:
    """Returns the proven pairs, each transpose in one of them at most."""
    flows = [_delegate_steps(delegate) for delegate in report.delegates]
    flows.append(
        [_kernel_step(operator) for operator in report.operators if operator.delegate is None]
    )
    return tuple(pair for steps in flows for pair in _pairs(steps))


def _delegate_steps(delegate: Delegate) -> list[_FlowStep]:
    backend = backend_of(delegate.backend)
    return [
        _FlowStep(
            (delegate.instruction, index),
            node.inputs,
            node.output,
            node.permutation,
            backend.node_kind(node.kind) in backend.neutral_kinds,
            node.readers,
        )
        for index, node in enumerate(delegate.nodes)
    ]


def _kernel_step(operator: GraphOperator) -> _FlowStep:
    name = parse_kernel_name(operator.operator)
    neutral = name.operator_class.category == "Elementwise" or name.base in _PLAIN_COPIES
    location, readers = (operator.instruction, None), operator.readers
    return _FlowStep(
        location, operator.inputs, operator.name, operator.permutation, neutral, readers
    )


def _pairs(steps: Sequence[_FlowStep]) -> Iterator[InversePair]:
    """Goes back from every transpose to where its input was transposed before."""
    writers = {step.output: step for step in steps if step.output is not None}
    readers = Counter(value for step in steps for value in step.inputs)
    used: set[Location] = set()
    for second in steps:
        trail = list(_trail(second, writers)) if second.permutation else []
        if not trail or second.permutation is None:
            continue
        first = trail[-1]
        if first.permutation is None or {first.location, second.location} & used:
            continue
        if _is_inverse(second.permutation, first.permutation):
            used |= {first.location, second.location}
            is_shared = any((step.readers or readers[step.output]) > 1 for step in trail)
            yield InversePair(
                first.location, second.location, first.permutation, len(trail) - 1, is_shared
            )


def _trail(step: _FlowStep, writers: dict[object, _FlowStep]) -> Iterable[_FlowStep]:
    """Yields what stands before `step`, up to the first operator that is not neutral."""
    for _ in writers:  # as far as a graph without circles can go
        if len(step.inputs) != 1 or step.inputs[0] not in writers:
            return
        step = writers[step.inputs[0]]
        yield step
        if not step.is_neutral:
            return


def _is_inverse(second: Sequence[int], first: Sequence[int]) -> bool:
    """Whether the second permutation is the inverse of the first."""
    return len(first) == len(second) and all(
        first[moved] == dimension for dimension, moved in enumerate(second)
    )
