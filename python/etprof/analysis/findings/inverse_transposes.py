"""F2b: transposes that undo each other, proven by the export's permutations and data flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.analysis.findings.finding import SHOWN_ROWS, EvidenceRow, Finding, Subject, sum_ns
from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.base.units import count_of, format_duration

if TYPE_CHECKING:
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.transposes import InversePair, Place


def find_inverse_transposes(subject: Subject) -> Finding | None:
    """F2b: the second transpose of a pair gives back what the first one took."""
    report = subject.run.report
    pairs = find_inverse_pairs(report) if report else ()
    if not pairs:
        return None
    measured = {place: detail for detail in subject.details if (place := _place_of(detail))}
    removable = [
        measured[place] for pair in pairs for place in _removable(pair) if place in measured
    ]
    return Finding(
        rule="F2b",
        title="Transposes that undo each other",
        severity="medium",
        experiment=subject.name,
        summary=(
            f"{count_of(len(pairs), 'pair')} of transposes with the inverse permutation and only "
            f"elementwise operators between them: {subject.weigh(removable)}."
        ),
        evidence=tuple(_evidence(pair, measured) for pair in pairs[:SHOWN_ROWS]),
        gain_ns=sum_ns(removable),
        action=_action(pairs, removable),
        ruled_out=(
            "another permutation: the second is the first one's inverse",
            "an operator between them that needs the layout: there is none",
        ),
    )


def _place_of(detail: OperatorDetail) -> Place | None:
    """Where the export's graph has this operator; None when it is not known."""
    if detail.attribution is None:
        return None
    return detail.row.instruction_id, detail.attribution.node


def _removable(pair: InversePair) -> tuple[Place, ...]:
    return (pair.second,) if pair.is_shared else (pair.first, pair.second)


def _evidence(pair: InversePair, measured: dict[Place, OperatorDetail]) -> EvidenceRow:
    sides = [measured.get(place) for place in (pair.first, pair.second)]
    names = [side.row.label if side else "not measured" for side in sides]
    times = [format_duration(side.typical_ns) for side in sides if side]
    where = next((side.module_path for side in sides if side and side.module_path), None)
    words = [
        f"permutation {pair.permutation}",
        f"{count_of(pair.between, 'operator')} between",
        *([" + ".join(times)] if times else []),
        *([f"module {where}"] if where else []),
        *(["others read the first one's result too"] if pair.is_shared else []),
    ]
    return EvidenceRow(" … ".join(names), ", ".join(words))


def _action(pairs: tuple[InversePair, ...], removable: list[OperatorDetail]) -> str:
    """Names the lines to change, where the export knows them."""
    lines = dict.fromkeys(detail.source for detail in removable if detail.source)
    where = ""
    if lines:
        where = (
            f". They come from {', '.join(list(lines)[:4])}: what is not written there itself, the "
            "export's decomposition of that line makes"
        )
    kept = sum(pair.is_shared for pair in pairs)
    shared = f"; keep the first of {count_of(kept, 'pair')}, for others read it" if kept else ""
    return (
        "remove both transposes of each pair: what is between them treats every element alike and "
        f"does not care for the layout{shared}{where}"
    )
