"""Rewrites of the positions that embeddings choose by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.backends.rewrite import ProgramRewrite, describe_missing, find_constants
from etprof.backends.xnnpack.program_rewrites import (
    CHECK,
    argument_of,
    find_changed,
    is_operator,
)

if TYPE_CHECKING:
    from collections.abc import Container

    import torch

_EMBEDDING, _RUNNING_SUM = "aten.embedding.default", "aten.cumsum.default"
_ADD, _MULTIPLY = "aten.add.Tensor", "aten.mul.Tensor"
_CONVERSIONS: Final = (
    "aten.to.dtype", "aten.to.dtype_layout", "aten.type_as.default", "aten._to_copy.default",
)  # fmt: skip
_WHOLE: Final = frozenset({"torch.int32", "torch.int64"})
"""Types that the length of any sequence fits."""


class CountedPositions(ProgramRewrite):
    """Positions that are counted from a mask of padding, as MPNet's and RoBERTa's are."""

    name = "counted_positions"
    changes = (
        "positions that are counted from a mask of padding stay of one type, and what is added to "
        "all of them becomes rows that are cut off their table"
    )
    legal = (
        "the same whole numbers: a running sum of a mask is not negative, and fits each type that "
        "it had; no position chooses the rows that are cut off"
    )
    rests_on = "XNNPACK's partitioner takes no operator of whole numbers"

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing((_EMBEDDING, _RUNNING_SUM, *_CONVERSIONS))

    @classmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns the conversions between mask and table, and the sum whose rows are cut off."""
        constants, changed = find_constants(program), find_changed(program)
        counts = (_find_count(node) for node in program.graph.nodes if node not in changed)
        return list(
            dict.fromkeys(node for count in counts if count for node in count.needless(constants))
        )

    @classmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Counts anew where `node` is a part of counting; one edit takes out all that is needless."""
        import torch

        graph, aten = program.graph, torch.ops.aten
        changed = find_changed(program)
        counts = (_find_count(head) for head in graph.nodes if head not in changed)
        count = next((count for count in counts if count and node in count.chain), None)
        if count is None:
            return

        def call(target: Any, *args: Any) -> torch.fx.Node:  # noqa: ANN401
            new: torch.fx.Node = graph.call_function(target, args)
            new.meta = dict(count.running_sum.meta)
            return new

        position, tables = count.chain[0], _readers(count.chain[0])
        may_cut = count.may_cut(find_constants(program))
        with graph.inserting_before(position):
            index = call(aten.cumsum.default, count.mask, argument_of(count.running_sum, "dim"))
            if count.factor is not None:
                # A product with a mask would bring a conversion of its own.
                zero = graph.call_function(aten.full.default, ([], 0), {"dtype": torch.int64})
                index = call(aten.where.self, count.factor, index, zero)
            if count.offset and not may_cut:
                index = call(aten.add.Tensor, index, count.offset)
        for table in tables if may_cut else ():
            with graph.inserting_before(table):
                rows = call(aten.slice.Tensor, table.args[0], 0, count.offset)
            del rows.meta["val"]
            # Without its row of padding, which counts in training alone.
            table.args = (rows, position)
        position.replace_all_uses_with(index, lambda user: not is_operator(user, CHECK))
        for old in count.chain:
            if not _readers(old):
                for check in list(old.users):
                    graph.erase_node(check)
                graph.erase_node(old)


class _PositionCount(NamedTuple):
    """How positions are counted: a running sum of `mask`, times `factor`, plus `offset`."""

    chain: tuple[torch.fx.Node, ...]
    """Operators from the one that a table reads to the first after the mask."""
    running_sum: torch.fx.Node
    mask: torch.fx.Node
    factor: torch.fx.Node | None
    """A mask; None where nothing is multiplied."""
    offset: int

    def may_cut(self, constants: Container[torch.fx.Node]) -> bool:
        """Whether all that reads the positions are tables whose first rows nobody else reads."""
        return self.offset > 0 and all(
            _is_table(reader, self.chain[0])
            and reader.args[0] in constants
            and len(reader.args[0].users) == 1  # type: ignore[union-attr]
            for reader in _readers(self.chain[0])
        )

    def needless(self, constants: Container[torch.fx.Node]) -> list[torch.fx.Node]:
        """Returns the operators of the chain that the same positions do not need."""
        may_cut = self.may_cut(constants)
        return [
            node
            for node in self.chain
            if (node is self.chain[0] or set(_readers(node)) <= {*self.chain})
            and (
                is_operator(node, *_CONVERSIONS)
                or (is_operator(node, _ADD) and (may_cut or node.args[1] == 0))
            )
        ]


def _find_count(position: torch.fx.Node) -> _PositionCount | None:
    """Returns how a table's positions are counted from a mask; None for any other node."""
    tables = [reader for reader in _readers(position) if _is_table(reader, position)]
    # A table takes whole numbers of any type, whatever else reads them that of before.
    if not tables or (
        len(tables) < len(_readers(position)) and _type_of(position) != "torch.int64"
    ):
        return None
    chain: dict[torch.fx.Node, None] = {}
    value, offset = _pass_conversions(position, chain), 0
    if is_operator(value, _ADD) and not value.kwargs and isinstance(value.args[1], int):
        chain[value], offset = None, value.args[1]
        value = _pass_conversions(value.args[0], chain)
    operands: list[Any] = [value]
    if is_operator(value, _MULTIPLY):
        chain[value] = None
        operands = [_pass_conversions(operand, chain) for operand in value.args]
    sums = [operand for operand in operands if is_operator(operand, _RUNNING_SUM)]
    factors = [operand for operand in operands if _type_of(operand) == "torch.bool"]
    if len(sums) != 1 or len(sums) + len(factors) < len(operands):
        return None
    running_sum = sums[0]
    chain[running_sum] = None
    mask = _pass_conversions(running_sum.args[0], chain)
    is_static = all(isinstance(size, int) for size in running_sum.meta["val"].shape)
    if _type_of(mask) != "torch.bool" or _type_of(running_sum) != "torch.int64" or not is_static:
        return None
    shapes = {tuple(node.meta["val"].shape) for node in (running_sum, *factors)}
    # What others compute of the running sum would need the one of before as well.
    counted = {running_sum}
    counted |= {node for node in sorted(chain) if counted & {*node.all_input_nodes}}
    is_own = all(node is position or {*_readers(node)} <= chain.keys() for node in counted)
    if len(shapes) > 1 or not is_own:
        return None
    ordered = tuple(sorted(chain, reverse=True))
    return _PositionCount(ordered, running_sum, mask, next(iter(factors), None), offset)


def _pass_conversions(value: Any, chain: dict[torch.fx.Node, None]) -> Any:  # noqa: ANN401
    """Returns what is converted between whole numbers, or added to 0; notes these in `chain`."""
    while (is_operator(value, *_CONVERSIONS) and _type_of(value) in _WHOLE) or (
        is_operator(value, _ADD) and value.args[1] == 0 and _type_of(value) in _WHOLE
    ):
        if _type_of(value.args[0]) not in {"torch.bool", *_WHOLE}:
            break
        chain[value] = None
        value = value.args[0]
    return value


def _type_of(value: Any) -> str:  # noqa: ANN401 - a node, or a number
    return str(getattr(getattr(value, "meta", {}).get("val"), "dtype", ""))


def _readers(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns what reads a value in an inference."""
    return [user for user in node.users if not is_operator(user, CHECK)]


def _is_table(reader: torch.fx.Node, position: torch.fx.Node) -> bool:
    return is_operator(reader, _EMBEDDING) and reader.args[1] is position
