"""Positions that are counted from a mask: what stays of counting, and that each table reads the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from etprof.backends.xnnpack.position_rewrites import CountedPositions
from etprof.backends.xnnpack.program_rewrites import FoldedConstants
from tests.unit.test_traced_rewrites import trace

TOKENS = torch.tensor([[5, 7, 1, 9, 1, 1], [1, 1, 3, 4, 5, 6]])
"""1 is padding, at the end of one row and at the start of the other."""
CONVERSIONS = {"aten.to.dtype", "aten.type_as.default"}


class Positions(nn.Module):
    """As transformers' create_position_ids_from_input_ids counts them, or something near it."""

    kinds: torch.Tensor

    def __init__(self, near: str = "") -> None:
        super().__init__()
        torch.manual_seed(4)
        self.near = near
        self.table, self.second = nn.Embedding(256, 3, padding_idx=1), nn.Embedding(8, 3)
        kinds = torch.zeros(2, 8, dtype=torch.int64)
        if near == "kinds that differ":
            kinds[1, 5] = 1
        self.register_buffer("kinds", kinds)

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401, PLR0911
        mask = tokens.ne(1).int()
        if self.near == "a mask of numbers":
            mask = tokens
        counts = torch.cumsum(mask, dim=1).type_as(mask)
        if self.near == "shifted":
            counts = counts + 1
        if self.near == "changed in place":
            mask[:, 0] = 0
        positions = counts * mask
        if self.near == "int32":
            return self.table(positions + 1)
        offset = {"from the end": -1, "none": 0}.get(self.near, 1)
        positions = positions.long() + offset
        if self.near == "counted twice":
            return self.table(positions) * counts[:, -1:, None]
        if self.near == "another table before":
            return self.table(positions) + self.second(counts * mask)
        if self.near == "returned":
            return self.table(positions), positions
        if self.near == "two tables":
            return self.table(positions) + self.second(positions)
        if self.near == "one table twice":
            return self.table(positions) + self.table(tokens)
        if self.near.startswith("kinds"):
            return self.table(positions) + self.second(self.kinds.gather(1, positions))
        return self.table(positions)


def rewritten(near: str) -> tuple[torch.export.ExportedProgram, int]:
    """Returns the edited program, which computes the same, and at how many operators it was."""
    program = trace(Positions(near), TOKENS)
    expected = program.module()(TOKENS)
    edited = 0
    for rewrite in (FoldedConstants, CountedPositions):
        for node in rewrite.find_places(program):
            rewrite.edit(program, node)
            edited += rewrite is CountedPositions
    program.graph.lint()
    torch.testing.assert_close(program.module()(TOKENS), expected, rtol=0, atol=0)
    return program, edited


def calls_of(program: torch.export.ExportedProgram) -> list[str]:
    return [
        str(node.target)
        for node in program.graph.nodes
        if node.op == "call_function" and "_assert" not in str(node.target)
    ]


@pytest.mark.parametrize(
    ("near", "adds", "tables"),
    [
        ("", 0, 1),
        ("int32", 0, 1),
        ("none", 0, 1),
        ("two tables", 1, 2),
        ("returned", 1, 1),
        ("one table twice", 2, 2),
    ],
)
def test_positions_are_counted_in_one_type(near: str, adds: int, tables: int) -> None:
    """The padding's offset goes into the table, where nothing but tables of their own read it."""
    program, edited = rewritten(near)
    calls = calls_of(program)
    assert edited >= 2
    assert not CONVERSIONS & set(calls)
    assert (calls.count("aten.cumsum.default"), calls.count("aten.where.self")) == (1, 1)
    assert calls.count("aten.embedding.default") == tables
    # A sum of two tables is one more.
    is_cut = near in {"", "int32", "two tables"}
    assert calls.count("aten.slice.Tensor") == (tables if is_cut else 0)
    assert calls.count("aten.add.Tensor") == adds


@pytest.mark.parametrize(
    "near",
    ["a mask of numbers", "shifted", "changed in place", "counted twice", "another table before"],
)
def test_other_positions_are_left_alone(near: str) -> None:
    """Numbers may be large, and what others read, or change, has to stay as it is."""
    assert rewritten(near)[1] == 0


def test_rows_are_cut_off_the_beginning_alone() -> None:
    """Of a table that is read from its end nothing is cut off."""
    tokens = torch.tensor([[5, 7, 1, 9, 9, 2]])
    program = trace(FromTheEnd(), tokens)
    expected = program.module()(tokens)
    places = CountedPositions.find_places(program)
    assert [str(node.target) for node in places] == ["aten.to.dtype"]
    for node in places:
        CountedPositions.edit(program, node)
    program.graph.lint()
    torch.testing.assert_close(program.module()(tokens), expected, rtol=0, atol=0)
    calls = calls_of(program)
    assert ("aten.slice.Tensor" in calls, calls.count("aten.add.Tensor")) == (False, 1)


class FromTheEnd(nn.Module):
    """As decoders count with an attention mask; the first token is none of padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.table = nn.Embedding(8, 3)

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        return self.table(torch.cumsum(tokens.ne(1).to(torch.int64), dim=1) + (-1))


def test_a_choice_among_equal_constants_is_a_constant() -> None:
    """RoBERTa chooses the type of each token from a buffer of zeros, by the token's position."""
    calls = calls_of(rewritten("kinds")[0])
    assert "aten.gather.default" not in calls
    assert "aten.slice.Tensor" in calls


class Remembered(nn.Module):
    """A buffer of zeros that each inference changes after it was read."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 6))

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        chosen = self.state.gather(1, tokens % 6)
        self.state.copy_(tokens.float())
        return chosen + tokens


def test_a_choice_from_a_buffer_that_changes_stays() -> None:
    """torch.export's signature does not say yet that it does."""
    assert FoldedConstants.find_places(trace(Remembered(), TOKENS)) == []


class Ones(nn.Module):
    """A sum of ones and of what is chosen among zeros."""

    ones: torch.Tensor
    zeros: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ones", torch.ones(2, 6, dtype=torch.int64))
        self.register_buffer("zeros", torch.zeros(2, 6, dtype=torch.int64))

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        return (self.ones + self.zeros.gather(1, tokens % 6)) * tokens


def test_what_reads_a_choice_is_not_taken_for_one() -> None:
    """Where the choice is left as it is, the sum would have become its first operand."""
    program = trace(Ones(), TOKENS)
    places = FoldedConstants.find_places(program)
    readers = [node for node in places if str(node.target) != "aten.gather.default"]
    assert [str(node.target) for node in readers] == ["aten.add.Tensor"]
    FoldedConstants.edit(program, readers[0])
    assert readers[0] in program.graph.nodes


class Halves(nn.Module):
    """A choice among halves that were whole numbers in between: zeros."""

    numbers: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.full((2, 6), 0.5))

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        whole = torch.ops.aten.to.dtype_layout(self.numbers, dtype=torch.int64)
        back = torch.ops.aten.to.dtype_layout(whole, dtype=torch.float32)
        return back.gather(1, tokens % 6)


def test_a_choice_among_constants_of_another_type_is_not_that_of_the_buffer() -> None:
    program = trace(Halves(), TOKENS)
    targets = [str(node.target) for node in FoldedConstants.find_places(program)]
    assert targets
    assert "aten.gather.default" not in targets


class Wide(nn.Module):
    """A choice of rows of a table, of which one is read eight times."""

    kinds: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(2, width)
        self.register_buffer("kinds", torch.zeros(1, 8, dtype=torch.int64))

    def forward(self, tokens: torch.Tensor) -> Any:  # noqa: ANN401
        return self.table(self.kinds.gather(1, tokens)) * tokens[..., None]


@pytest.mark.parametrize(("width", "is_written"), [(2**19, True), (2**20, False)])
def test_a_choice_is_written_out_where_a_program_should_store_its_rows(
    width: int, *, is_written: bool
) -> None:
    program = trace(Wide(width), torch.zeros(1, 8, dtype=torch.int64))
    targets = {str(node.target) for node in FoldedConstants.find_places(program)}
    assert targets == ({"aten.gather.default", "aten.embedding.default"} if is_written else set())


def test_a_choice_among_constants_that_differ_stays() -> None:
    program, edited = rewritten("kinds that differ")
    assert edited > 0
    assert {"aten.gather.default", "aten.add.Tensor"} <= set(calls_of(program))
