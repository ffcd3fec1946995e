"""Takes constants that a 16-bit type cannot hold as its largest value: masks of attention, mostly.

`masked_fill(mask, -1e9)` in float16 is refused by ExecuTorch's kernel when the program runs, and by
PyTorch's. What a mask means stays: after a softmax both are zero.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from etprof.export import operators, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FILLS: Final = frozenset(
    {"masked_fill", "masked_fill_", "where", "full", "full_like", "new_full", "fill", "fill_"}
)
"""Operators that write a constant as it is. Where one is a factor, a smaller one is another result."""
_VALUES: Final = frozenset({"value", "fill_value", "self", "other"})
"""Names of the arguments that are written."""


def clamp(program: torch.export.ExportedProgram) -> dict[str, int]:
    """Changes a traced method in place; returns how many operators of each kind were changed."""
    counts = Counter[str]()
    for node in [node for node in program.graph.nodes if node.op == "call_function"]:
        kind = operators.target_name(node).partition(".")[0]
        value = node.meta.get("val")
        if (
            kind not in _FILLS
            or not isinstance(value, torch.Tensor)
            or value.dtype not in tensors.HALF_PRECISIONS
        ):
            continue
        before = node.args
        node.args = tuple(_fit_numbers(node.target, before, value.dtype))
        if _fit_tensors(program, node) or node.args != before:
            counts[kind.removesuffix("_")] += 1
    if counts:
        program.graph.lint()
        program.graph_module.recompile()
    return dict(counts)


class HalfPrecisionMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, eager PyTorch takes such constants in the same way.

    And it computes in float32 what it has in no half precision, such as a resize with anti-aliasing:
    ExecuTorch's kernels take halves there.
    """

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator
        types: Any,  # noqa: ANN401
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - its result
        del types
        if func.overloadpacket.__name__ in _FILLS:
            types_of = [value.dtype for value in args if isinstance(value, torch.Tensor)]
            dtypes = [(kwargs or {}).get("dtype"), *types_of]
            half = next((dtype for dtype in dtypes if dtype in tensors.HALF_PRECISIONS), None)
            if half is not None:
                args = _fit_numbers(func, args, half)
        try:
            return func(*args, **(kwargs or {}))
        except NotImplementedError:
            half = tensors.half_precision_of((args, kwargs))
            if half is None or func._schema.is_mutable:
                raise
            wide = _with_type((args, kwargs or {}), half, torch.float32)
            return _with_type(func(*wide[0], **wide[1]), torch.float32, half)


def _with_type(values: Any, before: torch.dtype, after: torch.dtype) -> Any:  # noqa: ANN401 - any structure
    """Casts the tensors of one type in it, wherever they are."""

    def cast(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor) and leaf.dtype == before:
            return leaf.to(after)
        return leaf

    return pytree.tree_map(cast, values)


def _written(target: Any, args: Sequence[Any]) -> Iterator[tuple[int, Any]]:  # noqa: ANN401
    """Yields place and value of each argument that an operator writes."""
    for index, (declared, value) in enumerate(zip(target._schema.arguments, args, strict=False)):
        if declared.name in _VALUES:
            yield index, value


def _fit_numbers(target: Any, args: Sequence[Any], dtype: torch.dtype) -> list[Any]:  # noqa: ANN401
    """Returns the arguments with the numbers among them that `dtype` holds."""
    limits, fitted = torch.finfo(dtype), [*args]
    for index, value in _written(target, args):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and limits.max < abs(value) < float("inf"):
            fitted[index] = limits.max if value > 0 else limits.min
    return fitted


def _fit_tensors(program: torch.export.ExportedProgram, node: torch.fx.Node) -> int:
    """The same of a single number that the model made a tensor of: a constant of the program."""
    dtype = node.meta["val"].dtype
    limits = torch.finfo(dtype)
    changed = 0
    for index, value in _written(node.target, node.args):
        if not isinstance(value, torch.fx.Node) or not _is_wide_constant(program, value, limits):
            continue
        with program.graph.inserting_before(node):
            clamped = program.graph.call_function(
                torch.ops.aten.clamp.default, (value, limits.min, limits.max)
            )
            cast = program.graph.call_function(torch.ops.aten.to.dtype, (clamped, dtype))
        for added_node, form in ((clamped, torch.float32), (cast, dtype)):
            added_node.meta = {**node.meta, "val": value.meta["val"].to(form)}
        node.update_arg(index, cast)
        changed += 1
    return changed


def _is_wide_constant(
    program: torch.export.ExportedProgram, node: torch.fx.Node, limits: torch.finfo
) -> bool:
    """Whether a node is one float32 number that the type does not hold."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or value.dim():
        return False
    while node.op == "call_function" and len(node.all_input_nodes) == 1:
        node = node.all_input_nodes[0]
    name = program.graph_signature.inputs_to_lifted_tensor_constants.get(node.name, "")
    constant = program.constants.get(name)
    is_known = isinstance(constant, torch.Tensor) and constant.numel() == 1
    return is_known and limits.max < abs(float(constant)) < float("inf")
