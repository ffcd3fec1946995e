"""Inputs beside the example on which a program has to be right: samples, sizes and masks.

A program may be right on the example and wrong on what people feed it: other lengths of a dynamic
dimension, a padded mask, a real image. Nothing is drawn at random: the same model has the same
cases in every export.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

from etprof.export import tensors
from etprof.export.quality.reference import in_float32
from etprof.export.state import run_eager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etprof.model_registry.eager_model import ExportMethod

MOST_SAMPLES: Final = 2
"""Of calibration, each of which takes a run of eager in float32, of the converted model and of the
program."""
_MOST_GROWTH: Final = 16
"""Elements of all inputs ÷ the example's: a longer input takes minutes where the example takes
seconds."""


@dataclass(frozen=True)
class InputCase:
    """Inputs of one inference, and what they are."""

    name: str
    """Such as `calibration sample 1` or `inputs of 1x512`."""
    method: ExportMethod
    """The converted method, with these inputs in place of the example's."""
    references: list[Any] | None = None
    """What the float32 model gives, flat; None of inputs that are no sample of the user's: how good
    a precision is there, nobody asks."""
    tracing: tuple[ExportMethod, ExportMethod] | None = None
    """The float32 model and its trace, with these inputs, where the converted method is a trace."""


def run_samples(method: ExportMethod, dtype: torch.dtype) -> dict[int, list[Any]]:
    """Returns what the float32 model gives for a few calibration samples, rounded to `dtype`.

    They are the first ones that are not the example, by their places among all.
    """
    example = tensors.flatten(method.inputs)
    samples = [
        (index, sample)
        for index, sample in enumerate(method.calibration)
        if not all(map(_are_equal, tensors.flatten(sample), example))
    ]
    outputs = {}
    for index, sample in samples[:MOST_SAMPLES]:
        try:
            outputs[index] = run_eager(
                in_float32(replace(method, inputs=sample, calibration=()), dtype)
            )
        # Quantisation tells what is wrong with a sample; nothing else needs it.
        except Exception:  # noqa: BLE001, S112 - a model's code may raise anything
            continue
    return outputs


def _are_equal(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return first.shape == second.shape and torch.equal(first, second)
    return first is second or first == second


def list_cases(
    method: ExportMethod,
    sample_references: Mapping[int, list[Any]],
    program: torch.export.ExportedProgram,
    load_tracing: Callable[[], tuple[ExportMethod, ExportMethod]] | None = None,
) -> Iterator[InputCase]:
    """Yields the cases of a converted method; none where the example says all.

    Args:
        method: The method as it was lowered.
        sample_references: What `run_samples` gave of the float32 model.
        program: The traced method, whose range constraints say which sizes are allowed.
        load_tracing: Makes the float32 method and its trace anew, for a converted one that is a
            trace itself, as a quantised one is: what tracing got wrong, that has wrong too.
    """
    examples, positions = pytree.tree_flatten(method.inputs)
    for index, references in sample_references.items():
        stored = map(tensors.stored_like, tensors.flatten(method.calibration[index]), examples)
        sample = pytree.tree_unflatten(stored, positions)
        yield InputCase(
            f"calibration sample {index + 1}", replace(method, inputs=sample), references
        )
    example = (method.inputs, dict(method.kwarg_inputs))
    leaves, structure = pytree.tree_flatten(example)
    inputs = [*_placeholders(program)]
    if len(inputs) != len(leaves):
        # An input that nothing reads may have no place in the graph.
        return
    made = (*_of_other_sizes(leaves, inputs, program), *_of_other_masks(leaves, inputs))
    tracing = load_tracing() if made and load_tracing is not None else None
    for name, values in made:
        # In memory they lie as the example does, such as NHWC, which the program expects.
        stored = map(tensors.stored_like, values, leaves)
        arguments, keywords = pytree.tree_unflatten(stored, structure)
        given = partial(replace, inputs=arguments, kwarg_inputs=keywords)
        of_tracing = None if tracing is None else (given(tracing[0]), given(tracing[1]))
        yield InputCase(name, given(method), tracing=of_tracing)


def _placeholders(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """Yields the graph's nodes of the user's inputs, in their order."""
    names = {name for name in program.graph_signature.user_inputs if isinstance(name, str)}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            yield node


def _of_other_sizes(
    leaves: Sequence[Any], inputs: Sequence[torch.fx.Node], program: torch.export.ExportedProgram
) -> Iterator[tuple[str, list[Any]]]:
    """Yields the example at the least, the middle and the largest size of its dynamic dimensions."""
    ranges = {
        symbol: (max(int(limits.lower), 1), _finite(limits.upper))
        for symbol, limits in program.range_constraints.items()
    }
    ends: tuple[Callable[[int, int | None], int | None], ...] = (
        lambda low, _: low,
        lambda low, high: None if high is None else (low + high) // 2,
        lambda _, high: high,
    )
    names = {_describe_shapes(leaves)}
    for choose in ends:
        sizes = {symbol: choose(*limits) for symbol, limits in ranges.items()}
        shapes = [_shape_at(node, sizes) for node in inputs]
        values = [
            leaf if shape is None else _resize(leaf, shape)
            for leaf, shape in zip(leaves, shapes, strict=True)
        ]
        name = _describe_shapes(values)
        if name not in names and _count(values) <= _MOST_GROWTH * _count(leaves):
            names.add(name)
            yield name, values


def _finite(limit: Any) -> int | None:  # noqa: ANN401 - sympy's
    """Returns a limit as a number; None of one that is as good as none."""
    return int(limit) if limit.is_finite and limit < 2**31 else None


def _shape_at(node: torch.fx.Node, sizes: Mapping[Any, int | None]) -> tuple[int, ...] | None:
    """Returns an input's shape where its dimensions have these sizes; None where nobody knows."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    shape = []
    for dimension in value.shape:
        if isinstance(dimension, int):
            shape.append(dimension)
            continue
        expression = dimension.node.expr
        chosen = {symbol: sizes.get(symbol) for symbol in expression.free_symbols}
        if None in chosen.values():
            return None
        shape.append(int(expression.subs(chosen)))
    return tuple(shape)


def _resize(leaf: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - any input
    """Repeats or cuts a tensor along the dimensions that have another size."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    for axis, size in enumerate(shape):
        if leaf.shape[axis] != size and leaf.shape[axis]:
            leaf = leaf.index_select(axis, torch.arange(size) % leaf.shape[axis])
    return leaf


def _of_other_masks(
    leaves: Sequence[Any], inputs: Sequence[torch.fx.Node]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields the example with each mask full, and with its last half zero."""
    for index, (leaf, node) in enumerate(zip(leaves, inputs, strict=True)):
        if not _is_mask(leaf, node.name):
            continue
        padded = torch.ones_like(leaf)
        padded[..., leaf.shape[-1] // 2 :] = 0
        for kind, mask in (("full", torch.ones_like(leaf)), ("padded", padded)):
            if not torch.equal(mask, leaf):
                values = [*leaves[:index], mask, *leaves[index + 1 :]]
                yield f"a {kind} mask as input {index}", values


def _is_mask(leaf: object, name: str) -> bool:
    """Whether an input says of each place whether it counts: Booleans, or zeros and ones so named."""
    if not isinstance(leaf, torch.Tensor) or not leaf.dim() or leaf.shape[-1] < 2:
        return False
    if leaf.dtype == torch.bool:
        return True
    return "mask" in name and bool(((leaf == 0) | (leaf == 1)).all())


def _describe_shapes(leaves: Sequence[Any]) -> str:
    shapes = ["x".join(map(str, leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return f"inputs of {', '.join(shape or 'one number' for shape in shapes)}"


def _count(leaves: Sequence[Any]) -> int:
    return sum(math.prod(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
