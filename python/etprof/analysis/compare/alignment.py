"""Finds which operator of one split is which operator of another.

SME changes names: packed types take the place of plain ones (`PF32` for `F32`), and rows that pack
or convert appear on one side only. So operators are matched in program order by their name with
plain types, inside each delegate call where both programs have the same instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.split.operators import OperatorRow

Match = Literal["same", "other type", "baseline only", "candidate only"]

_Key = tuple[object, ...]


@dataclass(frozen=True)
class AlignedOperator:
    """One operator on both sides, or on the one that has it."""

    baseline: OperatorRow | None
    candidate: OperatorRow | None
    match: Match

    @property
    def row(self) -> OperatorRow:
        """The side that is there; the candidate's when both are."""
        row = self.candidate or self.baseline
        if row is None:
            msg = "an aligned operator has at least one side"
            raise ValueError(msg)
        return row


def align_operators(
    baseline: Sequence[OperatorRow], candidate: Sequence[OperatorRow]
) -> tuple[AlignedOperator, ...]:
    """Pairs all operators of both sides, each exactly once, in program order."""
    by_instruction = _instructions(baseline) == _instructions(candidate)
    before = [_key(row, by_instruction=by_instruction) for row in baseline]
    after = [_key(row, by_instruction=by_instruction) for row in candidate]
    aligned: list[AlignedOperator] = []
    for tag, first, last, start, end in SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        left, right = baseline[first:last], candidate[start:end]
        if tag == "equal":
            aligned += [
                AlignedOperator(one, other, "same") for one, other in zip(left, right, strict=True)
            ]
        else:
            aligned += _align_leftovers(left, right, by_instruction=by_instruction)
    return tuple(aligned)


def _instructions(rows: Sequence[OperatorRow]) -> list[int | None]:
    """The instructions that ran, in order; equal for the same program."""
    return list(dict.fromkeys(row.instruction_id for row in rows))


def _key(row: OperatorRow, *, by_instruction: bool) -> _Key:
    """What two names of one operator have in common."""
    place = row.instruction_id if by_instruction else None
    types = row.backend.plain_types(row.data_types)
    return (place, row.is_delegated, row.base, types, row.microkernel_type)


def _align_leftovers(
    baseline: Sequence[OperatorRow], candidate: Sequence[OperatorRow], *, by_instruction: bool
) -> Iterator[AlignedOperator]:
    """Pairs what differs in data types only, as with another precision; the rest stands alone."""
    before = [_loose_key(row, by_instruction=by_instruction) for row in baseline]
    after = [_loose_key(row, by_instruction=by_instruction) for row in candidate]
    for tag, first, last, start, end in SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        left, right = baseline[first:last], candidate[start:end]
        if tag == "equal":
            for one, other in zip(left, right, strict=True):
                yield AlignedOperator(one, other, "other type")
        else:
            yield from (AlignedOperator(row, None, "baseline only") for row in left)
            yield from (AlignedOperator(None, row, "candidate only") for row in right)


def _loose_key(row: OperatorRow, *, by_instruction: bool) -> _Key:
    place = row.instruction_id if by_instruction else None
    return (place, row.operator_class, row.base)
