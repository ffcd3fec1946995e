"""Finds which operator of one split is which operator of another.

Of one program: SME changes names, packed types take the place of plain ones (`PF32` for `F32`), and
rows that pack or convert appear on one side only. So operators are matched in program order by their
name with plain types, inside each delegate call where both sides have the same instructions.

Of two programs running numbers and delegate calls mean nothing. There operators belong together that
compute the same operators of the same modules, as both exports say; several of one side may be one
of the other. What no export knows, or has no partner, is matched in order within its module.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal, TypeAlias

from etprof.analysis.split.operators import add_parts
from etprof.base.text import layer_or_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.attribution import Attribution
    from etprof.analysis.split.operators import OperatorRow, PartTimes
    from etprof.run.delegation import MethodReport

Match = Literal[
    "same", "other type", "merged", "split", "regrouped", "baseline only", "candidate only"
]
"""merged: fewer in the candidate; split: more; regrouped: as many, but not one for one."""

_Key = tuple[object, ...]
_Row: TypeAlias = tuple[int, int]
"""A row by its side, 0 or 1, and its place there."""
_Mark: TypeAlias = tuple[tuple[str, str, int], bool]
"""What a row computes: module, operator and its number there; whether it only prepares that."""
_Members: TypeAlias = tuple[list[int], list[int]]
"""Places of rows on both sides."""


@dataclass(frozen=True)
class AlignedOperator:
    """What is one operator, or belongs together, on both sides; or is on one alone."""

    before: tuple[OperatorRow, ...]
    """Of the baseline, in program order; several where the candidate has them as fewer."""
    after: tuple[OperatorRow, ...]
    match: Match

    @property
    def baseline(self) -> OperatorRow | None:
        """The baseline's; the longest of several."""
        return _main(self.before)

    @property
    def candidate(self) -> OperatorRow | None:
        """The candidate's; the longest of several."""
        return _main(self.after)

    @property
    def baseline_times(self) -> PartTimes | None:
        """Of all of the baseline's together."""
        return add_parts([row.times for row in self.before])

    @property
    def candidate_times(self) -> PartTimes | None:
        """Of all of the candidate's together."""
        return add_parts([row.times for row in self.after])

    @property
    def row(self) -> OperatorRow:
        """The side that is there; the candidate's when both are."""
        row = self.candidate or self.baseline
        if row is None:
            msg = "an aligned operator has at least one side"
            raise ValueError(msg)
        return row

    @property
    def label(self) -> str:
        """The candidate's name, with the baseline's where they are other operators."""
        before, after = label_of(self.before), label_of(self.after)
        if before is None or after is None:
            return before or after or ""
        bases = [sorted(row.base for row in rows) for rows in (self.before, self.after)]
        return after if bases[0] == bases[1] else f"{before} → {after}"

    @property
    def name(self) -> str:
        """What people look for: the layer, else the label."""
        return layer_or_label(self.row.location, self.label)


def label_of(rows: Sequence[OperatorRow]) -> str | None:
    """Names rows that are one on the other side; None for none."""
    return " + ".join(row.label for row in rows) or None


def _main(rows: Sequence[OperatorRow]) -> OperatorRow | None:
    return max(rows, key=lambda row: row.times.mean_ns if row.times else 0.0, default=None)


def align_operators(
    baseline: Sequence[OperatorRow], candidate: Sequence[OperatorRow]
) -> tuple[AlignedOperator, ...]:
    """Pairs all operators of two runs of one program, each exactly once, in program order."""
    by_instruction = _instructions(baseline) == _instructions(candidate)

    def key(row: OperatorRow) -> _Key:
        """What two names of one operator have in common."""
        instruction = row.instruction_id if by_instruction else None
        types = row.backend.plain_types(row.data_types)
        return (instruction, row.is_delegated, row.base, types, row.microkernel_type)

    def loose_key(row: OperatorRow) -> _Key:
        """The same of what differs in data types only, as with another precision."""
        instruction = row.instruction_id if by_instruction else None
        return (instruction, row.operator_class, row.base)

    aligned: list[AlignedOperator] = []
    for is_equal, old_rows, new_rows in _blocks(baseline, candidate, key):
        if is_equal:
            pairs = zip(old_rows, new_rows, strict=True)
            aligned += [AlignedOperator((before,), (after,), "same") for before, after in pairs]
        else:
            aligned += _align_unequal(old_rows, new_rows, loose_key)
    return tuple(aligned)


def _instructions(rows: Sequence[OperatorRow]) -> list[int | None]:
    """The instructions that ran, in order; equal for the same program."""
    return list(dict.fromkeys(row.instruction_id for row in rows))


def _blocks(
    baseline: Sequence[OperatorRow],
    candidate: Sequence[OperatorRow],
    key: Callable[[OperatorRow], _Key],
) -> Iterator[tuple[bool, Sequence[OperatorRow], Sequence[OperatorRow]]]:
    """Yields what is equal on both sides, and what is not, in order."""
    keys = [list(map(key, rows)) for rows in (baseline, candidate)]
    matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        yield tag == "equal", baseline[first:last], candidate[start:end]


def _align_unequal(
    baseline: Sequence[OperatorRow],
    candidate: Sequence[OperatorRow],
    key: Callable[[OperatorRow], _Key],
) -> Iterator[AlignedOperator]:
    """Pairs what has the same key; the rest stands alone."""
    for is_equal, old_rows, new_rows in _blocks(baseline, candidate, key):
        if is_equal:
            yield from map(_pair, old_rows, new_rows)
        else:
            yield from (AlignedOperator((row,), (), "baseline only") for row in old_rows)
            yield from (AlignedOperator((), (row,), "candidate only") for row in new_rows)


def _pair(before: OperatorRow, after: OperatorRow) -> AlignedOperator:
    types = [row.backend.plain_types(row.data_types) for row in (before, after)]
    is_same = types[0] == types[1] and before.base == after.base
    return AlignedOperator((before,), (after,), "same" if is_same else "other type")


def align_programs(
    baseline: ExperimentAnalysis, candidate: ExperimentAnalysis
) -> tuple[AlignedOperator, ...]:
    """Pairs all operators of two programs, each row exactly once, in the candidate's order.

    By module path, the model's operator and the row's role, where both exports tell them.
    """
    sides = (baseline, candidate)
    reports = [side.program.report for side in sides]
    rows = [side.split.rows for side in sides]
    if reports[0] is None or reports[1] is None:
        return align_operators(*rows)
    marks = [
        _marks(side.attributions, report)
        for side, report in zip(sides, (reports[0], reports[1]), strict=True)
    ]
    aligned: list[AlignedOperator] = []
    paired: set[_Row] = set()
    groups = [members for group in _groups(marks) for members in _refine(group, rows, marks)]
    for members in itertools.chain(groups, _by_module(groups, marks)):
        if all(members):
            aligned.append(_join(members, rows))
            paired |= {(side, i) for side, indices in enumerate(members) for i in indices}
    unpaired = [
        [row for i, row in enumerate(side) if (number, i) not in paired]
        for number, side in enumerate(rows)
    ]
    aligned += _align_unequal(unpaired[0], unpaired[1], lambda row: (row.operator_class, row.base))
    return tuple(_in_order(aligned, rows[0], rows[1]))


def _marks(
    attributions: Sequence[Attribution | None], report: MethodReport
) -> list[frozenset[_Mark]]:
    """What each row computes: operators of modules, each with its number there, and its role.

    Quantising is none of the model's operators. What a pass inserted prepares one, and is another
    role than computing it.
    """
    names, counts = dict[str, tuple[str, str, int]](), Counter[tuple[str, str]]()
    for operator in report.operators:
        if not operator.is_quantization:
            kind = (operator.origin.module_path, operator.operator.partition(".")[0])
            names[operator.name] = (*kind, counts[kind])
            counts[kind] += 1
    return [
        frozenset(
            (names[name], attribution.certainty == "inserted")
            for name in (attribution.graph_operators if attribution else ())
            if attribution and name in names
        )
        for attribution in attributions
    ]


def _groups(marks: Sequence[Sequence[frozenset[_Mark]]]) -> Iterator[_Members]:
    """Yields the rows of both sides that hang together by what they compute."""
    rows = [(side, i) for side, of_side in enumerate(marks) for i in range(len(of_side))]
    by_mark = defaultdict[_Mark, list[_Row]](list)
    for side, i in rows:
        for mark in marks[side][i]:
            by_mark[mark].append((side, i))
    seen = set[_Row]()
    for first in rows:
        group, waiting = list[_Row](), [first]
        while waiting:
            row = waiting.pop()
            if row not in seen:
                seen.add(row)
                group.append(row)
                waiting += [
                    neighbour for mark in marks[row[0]][row[1]] for neighbour in by_mark[mark]
                ]
        if group and marks[first[0]][first[1]]:
            yield tuple(  # type: ignore[misc]  # two sides
                sorted(i for side, i in group if side == number) for number in (0, 1)
            )


def _refine(
    group: _Members,
    rows: Sequence[Sequence[OperatorRow]],
    marks: Sequence[Sequence[frozenset[_Mark]]],
) -> Iterator[_Members]:
    """Yields rows one for one that compute the same as the same class; the rest together."""
    kinds: list[dict[_Key, list[int]]] = [defaultdict(list), defaultdict(list)]
    for side, indices in enumerate(group):
        for i in indices:
            kinds[side][marks[side][i], rows[side][i].operator_class].append(i)
    unmatched: tuple[list[int], list[int]] = ([], [])
    for kind in dict.fromkeys([*kinds[0], *kinds[1]]):
        before, after = (kinds[side].get(kind, []) for side in (0, 1))
        if len(before) == len(after):
            yield from (
                ([before_index], [after_index])
                for before_index, after_index in zip(before, after, strict=True)
            )
        else:
            unmatched[0].extend(before)
            unmatched[1].extend(after)
    yield sorted(unmatched[0]), sorted(unmatched[1])


def _by_module(
    groups: Sequence[_Members], marks: Sequence[Sequence[frozenset[_Mark]]]
) -> Iterator[_Members]:
    """Yields what has no partner and computes something, by its module.

    A lowering may write one operator as others, such as linear as a transpose and a product. What
    stands in the root module may be anything.
    """
    modules = defaultdict[object, tuple[list[int], list[int]]](lambda: ([], []))
    for members in groups:
        rows = [(side, i) for side, indices in enumerate(members) for i in indices]
        for side, i in () if all(members) else rows:
            computed = sorted(key[0] for key, is_inserted in marks[side][i] if not is_inserted)
            if computed and computed[0]:
                modules[computed[0]][side].append(i)
    yield from modules.values()


def _join(members: _Members, rows: Sequence[Sequence[OperatorRow]]) -> AlignedOperator:
    before, after = (
        tuple(side[i] for i in indices) for side, indices in zip(rows, members, strict=True)
    )
    if len(before) == len(after) == 1:
        return _pair(before[0], after[0])
    difference = len(after) - len(before)
    match: Match = "regrouped" if not difference else "split" if difference > 0 else "merged"
    return AlignedOperator(before, after, match)


def _in_order(
    aligned: Sequence[AlignedOperator],
    baseline: Sequence[OperatorRow],
    candidate: Sequence[OperatorRow],
) -> list[AlignedOperator]:
    """Sorts by the candidate's order; what the baseline alone has follows what it followed there."""
    pair_of_row = {id(row): pair for pair in aligned for row in (*pair.before, *pair.after)}
    positions = {id(row): position for position, row in enumerate(candidate)}
    anchors: dict[int, tuple[int, int]] = {}
    last = -1
    for number, row in enumerate(baseline):
        pair = pair_of_row[id(row)]
        if pair.after:
            last = max(positions[id(after_row)] for after_row in pair.after)
        else:
            anchors[id(pair)] = (last, number + 1)
    for pair in aligned:
        if pair.after:
            anchors[id(pair)] = (min(positions[id(row)] for row in pair.after), 0)
    return sorted(aligned, key=lambda pair: anchors[id(pair)])
