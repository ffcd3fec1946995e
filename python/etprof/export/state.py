"""What a model keeps from one call to the next, and calls that begin with the same of it.

Two runs compare step by step from one initial state: a cache, a counter or a ring buffer is another
after each call.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from etprof.export import tensors
from etprof.export.changes import half_constants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from etprof.model_registry.eager_model import ExportMethod

STEPS: Final = 4
"""Calls in a row that a verdict on a model with state is about. The first shows its initial state,
the second that it is carried on, and a short ring has turned by the fourth."""
STATELESS_STEPS: Final = 2
"""Of a model without: a program that spoils its own weights is right once."""
_PLAIN: Final = (bool, int, float, complex, str, type(None), torch.Tensor)
"""Attributes of these types, and lists and the like of them, may be state."""
_OF_MODULES: Final = frozenset(vars(nn.Module()))
"""Attributes that every module has; the buffers among them are looked at one by one."""


@dataclass(frozen=True)
class StateEntry:
    """A buffer or a plain attribute of a module, at one moment."""

    owner: dict[str, Any]
    """The module's buffers, or its attributes."""
    name: str
    value: Any
    """The object itself, which later calls may change."""
    saved: Any
    """A copy of what it was."""

    def restore(self) -> None:
        """Gives the module back what it had: the same tensor with the same values."""
        if isinstance(self.value, torch.Tensor):
            self.value.copy_(self.saved)
            self.owner[self.name] = self.value
        elif not _are_equal(self.owner.get(self.name), self.saved):
            self.owner[self.name] = _copy(self.saved)

    @property
    def is_kept(self) -> bool:
        """Whether the module has a tensor like it still; a cache may have been made anew, larger."""
        now = self.owner.get(self.name)
        return (
            isinstance(now, torch.Tensor)
            and now.shape == self.value.shape
            and now.dtype == self.value.dtype
        )


def take_state(module: nn.Module) -> dict[str, StateEntry]:
    """Returns all that calls of `module` may change, by its path; weights are no state."""
    return {
        path: StateEntry(owner, name, owner[name], _copy(owner[name]))
        for path, owner, name in _list_state(module)
    }


def _list_state(module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields the path of each buffer and plain attribute, what holds it, and its name there."""
    for path, layer in module.named_modules():
        buffers = [
            (layer._buffers, name) for name, value in layer._buffers.items() if value is not None
        ]
        attributes = [
            (vars(layer), name)
            for name, value in vars(layer).items()
            if name not in _OF_MODULES and _is_plain(value)
        ]
        for owner, name in (*buffers, *attributes):
            yield f"{path}.{name}".lstrip("."), owner, name


def list_changes(before: dict[str, StateEntry], after: dict[str, StateEntry]) -> list[str]:
    """Returns the paths of what is another, new or gone."""
    return [
        path
        for path in dict.fromkeys([*before, *after])
        if path not in before
        or path not in after
        or not _are_equal(before[path].saved, after[path].saved)
    ]


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple | dict | deque):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, _PLAIN)


def _copy(value: Any) -> Any:  # noqa: ANN401 - any plain attribute
    return pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value
    )


def _are_equal(one: object, other: object) -> bool:
    """Whether two values are the same; what is no number equals itself."""
    leaves, spec = pytree.tree_flatten(one)
    others, other_spec = pytree.tree_flatten(other)
    return spec == other_spec and all(map(_are_same, leaves, others))


def _are_same(one: object, other: object) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return type(one) is type(other) and bool(
            one == other or (one != one and other != other)  # noqa: PLR0124 - NaN
        )
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124 - NaN


@contextmanager
def unchanged_buffers(module: nn.Module, names: Collection[str] | None = None) -> Iterator[None]:
    """Gives the buffers of `module`, such as a cache, their tensors and values back after the block.

    One that is gone by then, such as a folded batch norm's, or was made anew in another shape is
    passed over.

    Args:
        module: Whose buffers.
        names: Paths of those; None: all.
    """
    saved = [
        StateEntry(owner, name, owner[name], _copy(owner[name]))
        for path, owner, name in _list_state(module)
        if isinstance(owner[name], torch.Tensor) and (names is None or path in names)
    ]
    try:
        with torch.no_grad():
            yield
    finally:
        with torch.no_grad():
            for entry in saved:
                if entry.is_kept:
                    entry.restore()


@dataclass(frozen=True)
class EagerSteps:
    """What a module gives, inference by inference from its initial state."""

    outputs: Sequence[list[Any]]
    """Flat, as the program gives them; copies, which no later call changes."""
    inputs: Sequence[list[Any]]
    """Flat, as the program takes them."""
    changed: tuple[str, ...] = ()
    """Paths of the state that its outputs depend on; none of a module without."""

    @property
    def count(self) -> int:
        """Inferences that a program has to get right."""
        return len(self.outputs)

    def of(self, step: int) -> list[Any]:
        """Returns the outputs of an inference; the first is 1."""
        return self.outputs[step - 1]


def run_steps(method: ExportMethod) -> EagerSteps:
    """Calls the module a few times in a row; it has its initial state afterwards.

    One with state gets other inputs each time: with the same ones many a wrong state shows nothing.
    """
    module, before = method.module, take_state(method.module)
    with unchanged_buffers(module):
        first = _call(module, vary_inputs(method, 1))
        changed = list_changes(before, take_state(module))
    if not changed:
        return _repeat(method, first)
    restore_state(module, before)
    in_row = _call_in_row(method, STEPS)
    changed = list_changes(before, take_state(module))
    restore_state(module, before)
    if _are_equal(in_row.outputs, run_apart(method, STEPS)):
        # What is computed once and looked up from then on is no state, and stays.
        run_eager(method)
        return _repeat(method, first)
    return replace(in_row, changed=tuple(changed))


def run_apart(method: ExportMethod, count: int) -> list[list[Any]]:
    """Returns the outputs of the same inferences where each starts from the initial state."""
    before, outputs = take_state(method.module), []
    for step in range(1, count + 1):
        outputs.append(_call(method.module, vary_inputs(method, step)))
        restore_state(method.module, before)
    return outputs


def follow_steps(method: ExportMethod, references: EagerSteps) -> EagerSteps:
    """Calls a converted module as the one was called that `references` are of."""
    if not references.changed:
        return _repeat(method, run_eager(method))
    with unchanged_buffers(method.module):
        return replace(_call_in_row(method, references.count), changed=references.changed)


def vary_inputs(method: ExportMethod, step: int) -> Any:  # noqa: ANN401 - any inputs
    """Returns positional and keyword inputs of an inference in a row; of the first, the example's.

    Further ones are calibration samples of the example's shapes, or the example with its
    floating-point values shifted by a place; what has two values at most, such as a mask, stays.
    """
    example = (method.inputs, dict(method.kwarg_inputs))
    if step == 1:
        return example
    if samples := samples_of_example_shapes(method):
        return samples[(step - 2) % len(samples)], example[1]
    return pytree.tree_map(lambda leaf: _shift(leaf, step - 1), example)


def samples_of_example_shapes(method: ExportMethod) -> list[Any]:
    """Returns the calibration samples whose tensors have the shapes of the example's."""
    shapes = [_shape(leaf) for leaf in tensors.flatten(method.inputs)]
    return [
        sample
        for sample in method.calibration
        if [_shape(leaf) for leaf in tensors.flatten(sample)] == shapes
    ]


def _shape(leaf: object) -> tuple[int, ...] | None:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None


def _shift(leaf: object, places: int) -> object:
    if not (isinstance(leaf, torch.Tensor) and leaf.is_floating_point()):
        return leaf
    values = torch.unique(leaf)
    return leaf if values.numel() <= 2 else torch.empty_like(leaf).copy_(leaf.roll(places))


def restore_state(module: nn.Module, before: dict[str, StateEntry]) -> None:
    """Gives the module the state of then; what it did not have is gone."""
    with torch.no_grad():
        for path, owner, name in [*_list_state(module)]:
            if path not in before:
                del owner[name]
        for entry in before.values():
            entry.restore()


def run_eager(method: ExportMethod) -> list[Any]:
    """Returns the outputs of the first inference, flattened as the program gives them."""
    with unchanged_buffers(method.module):
        return _call(method.module, vary_inputs(method, 1))


def _repeat(method: ExportMethod, outputs: list[Any]) -> EagerSteps:
    flat = tensors.flatten(vary_inputs(method, 1))
    return EagerSteps([outputs] * STATELESS_STEPS, [flat] * STATELESS_STEPS)


def _call_in_row(method: ExportMethod, count: int) -> EagerSteps:
    """Calls the module so often, each time from the state that the call before it left."""
    inputs = [vary_inputs(method, step) for step in range(1, count + 1)]
    outputs = [_call(method.module, step_inputs) for step_inputs in inputs]
    return EagerSteps(outputs, [tensors.flatten(step_inputs) for step_inputs in inputs])


def _call(module: nn.Module, given: Any) -> list[Any]:  # noqa: ANN401 - any inputs
    """Calls the module with copies of its inputs, which it may change."""
    inputs, kwarg_inputs = _copy(given)
    with torch.no_grad(), half_constants.HalfPrecisionMode():  # type: ignore[no-untyped-call]
        outputs = module(*inputs, **kwarg_inputs)
    return [_copy(value) for value in tensors.flatten(outputs)]


def touches_state(node: torch.fx.Node) -> bool:
    """Whether a node of a graph module writes into a buffer, or reads what comes of changed ones alone.

    Quantised, the one would write into a dequantised copy, and what the other reads would be folded
    into a constant by torchao's conversion: the state would be lost.
    """
    changed = {name for call in node.graph.nodes if (name := _written_buffer(call)) is not None}
    if not changed:
        return False
    return _written_buffer(node) is not None or any(
        _is_of_state(source, changed) for source in node.all_input_nodes
    )


def _written_buffer(node: torch.fx.Node) -> str | None:
    """Returns the name of the buffer that a node writes into; None for what writes into none."""
    schema = getattr(node.target, "_schema", None)
    written = node.args[0] if node.args and schema is not None and schema.is_mutable else None
    while isinstance(written, torch.fx.Node) and getattr(written.target, "is_view", False):
        written = written.args[0]
    is_buffer = isinstance(written, torch.fx.Node) and written.op == "get_attr"
    return str(written.target) if isinstance(written, torch.fx.Node) and is_buffer else None


def _is_of_state(node: torch.fx.Node, changed: Collection[str]) -> bool:
    """Whether a value depends on no input, and on one of the buffers `changed`."""
    pending, seen = [node], set[torch.fx.Node]()
    while pending:
        source = pending.pop()
        if source.op == "placeholder":
            return False
        if source not in seen:
            seen.add(source)
            pending += source.all_input_nodes
    return any(source.op == "get_attr" and source.target in changed for source in seen)
