"""Rewrites that leave out what is computed twice, or computed and then cut away."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.rewrite import ProgramRewrite, describe_missing
from etprof.backends.xnnpack.program_rewrites import (
    argument_of,
    find_changed,
    is_operator,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_SELECT, _SLICE = "aten.select.int", "aten.slice.Tensor"
_LINEAR, _LAYER_NORM = "aten.linear.default", "aten.layer_norm.default"
_TABLES: Final = ("aten.arange.", "aten.full.", "aten.zeros.", "aten.ones.")
_UNARY: Final = frozenset(
    {"aten.relu.default", "aten.gelu.default", "aten.silu.default", "aten.tanh.default",
     "aten.sigmoid.default", "aten.hardswish.default", "aten.hardsigmoid.default",
     "aten.clamp.default", "aten.neg.default",
     "quantized_decomposed.quantize_per_tensor.default",
     "quantized_decomposed.dequantize_per_tensor.default"}
)  # fmt: skip
_BINARY: Final = frozenset(
    {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"}
)


class SharedResults(ProgramRewrite):
    """What is computed twice of the same values, as by two heads that each run their trunk."""

    name = "shared_results"
    changes = (
        "an operator that repeats one before it, with the same inputs and arguments, is left out, and "
        "that one's result is read"
    )
    legal = (
        "the same operator of the same values; what draws random numbers, and what is computed of a "
        "value that changes in place, is left alone"
    )
    rests_on = (
        "neither torch.export nor to_edge_transform_and_lower removes common subexpressions, and "
        "XNNPACK computes each node that it is given"
    )

    @classmethod
    def find_problem(cls) -> str | None:
        """Nothing: it looks for any operator."""
        return None

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns the operators that repeat one before them, also where they read such ones."""
        first_of: dict[object, torch.fx.Node] = {}
        same_as: dict[torch.fx.Node, torch.fx.Node] = {}
        changed = find_changed(program)
        for node in program.graph.nodes:
            key = None if node in changed else _key(node, same_as)
            if key is not None and first_of.setdefault(key, node) is not node:
                same_as[node] = first_of[key]
        return list(same_as)

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Lets what reads it read the one before it; those that come first have been left out."""
        key, source, changed = _key(node, {}), node.all_input_nodes[0], find_changed(program)
        # Both read the same value, but for conversions and tables: of those each has its own.
        is_shared = not (_is_conversion(source) or _is_table(source))
        calls = source.users if is_shared else program.graph.nodes
        twins = (call for call in calls if call < node and call not in changed)
        twin = min((call for call in twins if _key(call, {}) == key), default=None)
        if twin is not None:
            node.replace_all_uses_with(twin)
            node.graph.erase_node(node)


def _is_conversion(node: torch.fx.Node) -> bool:
    """Whether it is a step of a quantisation, or picks a scale of one.

    XNNPACK's passes expect one for each reader: with one for two an int8 program had 2 dB.
    """
    space = getattr(node.target, "namespace", "")
    return space in {"quantized_decomposed", "torchao"} or node.target is operator.getitem


def _is_table(node: torch.fx.Node) -> bool:
    """Whether it makes a value of nothing, always the same."""
    return not node.all_input_nodes and str(node.target).startswith(_TABLES)


def _key(node: torch.fx.Node, same_as: Mapping[torch.fx.Node, torch.fx.Node]) -> str | None:
    """Returns what is equal for operators with one result; None for those to leave alone."""
    import torch

    # Of no inputs: a mask or a zero costs nothing, and constants are folded elsewhere.
    if node.op != "call_function" or not node.all_input_nodes or node.is_impure():
        return None
    draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    is_idle = is_operator(node, "aten.dropout.default") and not argument_of(node, "train")
    return None if (draws and not is_idle) or _is_conversion(node) else _spell(node, same_as)


def _spell(node: torch.fx.Node, same_as: Mapping[torch.fx.Node, torch.fx.Node]) -> str:
    """Returns a call as text, conversions and tables in it too: a 1 equals True, and is another."""
    import torch

    def spell(value: torch.fx.Node) -> Any:  # noqa: ANN401
        is_own = _is_conversion(value) or _is_table(value)
        return _spell(value, same_as) if is_own else same_as.get(value, value)

    return f"{node.target}{torch.fx.map_arg((node.args, node.kwargs), spell)!r}"


class EarlySelects(ProgramRewrite):
    """Rows that are computed and then cut away, as by a head whose last row alone is returned."""

    name = "early_selects"
    changes = (
        "a select or slice of rows goes before the linear layers, layer norms and elementwise operators "
        "that only it reads"
    )
    legal = (
        "these operators compute each row from that row alone, so the rows that stay are the same"
    )
    rests_on = "XNNPACK computes every row of what it is given, whoever reads it"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing((_SELECT, _SLICE, _LINEAR, _LAYER_NORM))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns the operators that would compute fewer rows, and what cuts these."""
        changed = find_changed(program)
        cuts = {
            node: cls._above(node)
            for node in program.graph.nodes
            if is_operator(node, _SELECT, _SLICE) and node not in changed
        }
        return [
            node
            for cut, above in cuts.items()
            if any(is_operator(moved, _LINEAR) for moved in above)
            for node in (cut, *above)
        ]

    @classmethod
    def _above(cls, cut: torch.fx.Node) -> list[torch.fx.Node]:
        """Returns the operators that it can go before, the nearest first."""
        dim = _cut_rows(cut)
        if dim is None:
            return []
        moved, waiting = dict[Any, None](), list(cut.all_input_nodes)
        while waiting:
            value = waiting.pop()
            if set(value.users) <= {cut, *moved} and _computes_rows(value, dim):
                moved[value] = None
                waiting += _row_inputs(value)
        return list(moved)

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Computes what is read of rows that were cut first; of other operators nothing is left to do."""
        import torch
        from torch._guards import detect_fake_mode

        moved = set(cls._above(node)) if is_operator(node, _SELECT, _SLICE) else set()
        if not moved:
            return
        graph, cut = program.graph, dict[Any, torch.fx.Node]()

        def compute(source: torch.fx.Node, args: tuple[Any, ...]) -> torch.fx.Node:
            """Calls an operator of `source` anew; rewrites that come after this one ask for its value."""
            new: torch.fx.Node = graph.call_function(source.target, args, dict(source.kwargs))
            values = torch.fx.map_arg(args, lambda operand: operand.meta["val"])
            new.meta = {**source.meta, "val": new.target(*values, **new.kwargs)}  # type: ignore[operator]
            return new

        def cut_value(value: Any) -> torch.fx.Node:  # noqa: ANN401
            if value not in cut and value in moved:
                rows = set(_row_inputs(value))
                args = tuple(cut_value(a) if a in rows else a for a in value.args)
                cut[value] = compute(value, args)
            elif value not in cut:
                cut[value] = compute(node, (value, *node.args[1:]))
            return cut[value]

        with graph.inserting_before(node), detect_fake_mode([node.meta["val"]]) or nullcontext():
            result = cut_value(node.args[0])
        node.replace_all_uses_with(result)
        for gone in (node, *sorted(moved, reverse=True)):
            graph.erase_node(gone)


def _cut_rows(cut: torch.fx.Node) -> int | None:
    """Returns the dimension that it cuts, counted from the first; None for the last, or unknown sizes."""
    value = cut.args[0]
    shape = getattr(getattr(value, "meta", {}).get("val"), "shape", ())
    if not shape or not all(isinstance(size, int) for size in (*shape, *cut.args[1:])):
        return None
    dim = argument_of(cut, "dim") % len(shape)
    taken = cut.meta["val"].numel()
    is_less = taken < cut.args[0].meta["val"].numel()  # type: ignore[union-attr]
    return int(dim) if is_less and dim < len(shape) - 1 else None


def _computes_rows(value: torch.fx.Node, dim: int) -> bool:
    """Whether each row of a value along `dim` is computed from the same row of its inputs."""
    if is_operator(value, _LINEAR, *_UNARY):
        return True
    shape = value.meta["val"].shape if "val" in value.meta else ()
    if is_operator(value, _LAYER_NORM):
        return dim < len(shape) - len(argument_of(value, "normalized_shape"))
    if not is_operator(value, *_BINARY):
        return False
    # Each has the dimension, or broadcasts over all before it: a row of weights, a number.
    return all(
        _is_whole(operand, shape) or _is_row(operand, dim - len(shape)) for operand in value.args
    )


def _is_whole(operand: Any, shape: Any) -> bool:  # noqa: ANN401 - a node, or a number
    return _shape_of(operand) == tuple(shape)


def _is_row(operand: Any, dim: int) -> bool:  # noqa: ANN401
    """Whether an operand of a sum has no dimension `dim`, counted from the last."""
    return len(_shape_of(operand)) < -dim


def _shape_of(operand: Any) -> tuple[int, ...]:  # noqa: ANN401
    return tuple(getattr(getattr(operand, "meta", {}).get("val"), "shape", ()))


def _row_inputs(value: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns the inputs of which a row is needed for a row of the value."""
    inputs: Any = value.args if is_operator(value, *_BINARY) else value.args[:1]
    return [
        operand
        for operand in inputs
        if hasattr(operand, "meta") and len(_shape_of(operand)) == len(_shape_of(value))
    ]


NEEDLESS_WORK: Final = (SharedResults, EarlySelects)
