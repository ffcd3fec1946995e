"""F2 and F7: what moving data costs, in many small pieces, in large ones, or back and forth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.causes import command_for, find_remedy
from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    ReferenceAnswer,
    Subject,
    rule,
    sum_ns,
    times_of,
)
from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.base.units import count_of, format_duration, format_share

if TYPE_CHECKING:
    from etprof.analysis.findings.causes import Remedy
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.transposes import InversePair, Location
    from etprof.run.delegation import MethodReport

LAYOUT_CLASSES: Final = ("layout", "copy", "view")
MERGING: Final = "merged_transposes"
"""The rewrite that takes two transposes of one delegate out where nothing stands between them."""


def joins(detail: OperatorDetail) -> bool:
    """Whether it is a piece of a concatenation: it joins data, and moves none to another layout."""
    kind = detail.attribution.kind if detail.attribution else None
    return detail.row.base == "cat" or (kind or "").startswith("Concatenate")


def _layout(subject: Subject, *classes: str) -> list[OperatorDetail]:
    return [detail for detail in subject.in_class(*classes) if not joins(detail)]


@rule("F2", "many small layout operators", reads_operators=True)
def find_small_layout_operators(subject: Subject) -> Finding | None:
    """Many operators that only move data, each cheap, together not."""
    limits = subject.thresholds
    small = [
        detail
        for detail in _layout(subject, *LAYOUT_CLASSES)
        if (
            times_of(detail).mean_ns <= limits.small_layout_ns
            or subject.share_of([detail]) <= limits.small_layout_share
        )
        and not subject.reaches([detail], limits.large_layout_share)
    ]
    if len(small) < limits.small_layout_count or not subject.reaches(
        small, limits.small_layout_total_share
    ):
        return None
    share = subject.share_of(small)
    longest = format_duration(max(times_of(detail).mean_ns for detail in small))
    mean_duration = format_duration(sum_ns(small) / len(small))
    return Finding(
        "Many small layout operators add up",
        "high" if share >= limits.layout_share else "medium",
        f"{len(small)} transposes and copies of {mean_duration} each take {subject.weigh(small)}.",
        _layout_action(subject, small),
        *subject.cost(small),
        ruled_out=(f"one slow copy: the longest takes {longest}",),
        **_remedy_of(subject, small).fields,
    )


@rule("F2d", "a single large layout operator", reads_operators=True)
def find_large_layout_operator(subject: Subject) -> Finding | None:
    """One operator that only moves data takes a large share by itself."""
    large = [
        detail
        for detail in _layout(subject, *LAYOUT_CLASSES)
        if subject.reaches([detail], subject.thresholds.large_layout_share)
    ]
    if not large:
        return None
    first, is_one = large[0], len(large) == 1
    subject_text = first.name if is_one else count_of(len(large), "operator")
    return Finding(
        "A single operator that only moves data is slow",
        "high" if subject.reaches(large, subject.thresholds.layout_share) else "medium",
        f"{subject_text}{'' if is_one else ' that only move data, each large'}: {subject.weigh(large)}.",
        _layout_action(subject, large),
        *subject.cost(large),
        **_remedy_of(subject, large).fields,
    )


def _layout_action(subject: Subject, layout: list[OperatorDetail]) -> str:
    """Says what this model's own operators, graph and export ask for."""
    steps = []
    report = subject.insight.experiment.program.report
    pairs = find_inverse_pairs(report) if report else ()
    if pairs:
        undone = f"remove the {count_of(len(pairs), 'pair')} that undo each other (F2b)"
        steps.append(undone + _merging(subject, pairs))
    turned = [detail for detail in layout if detail.row.operator_class.finer == "layout"]
    takes_nchw = subject.insight.experiment.program.takes_nchw
    if turned and takes_nchw is not False and subject.in_category("Convolution"):
        steps.append("keep one layout throughout: export with `--channels-last`")
    modules = dict.fromkeys(detail.module_path for detail in layout if detail.module_path)
    where = f" of {', '.join(list(modules)[:4])}" if modules else ""
    steps.append(f"move the transposes and copies{where} to the model's edge, or leave them out")
    remedy = _remedy_of(subject, layout)
    if remedy.operators:
        command = f" ({remedy.command})" if remedy.command else ""
        steps.append(f"have the {remedy.operators} outside the delegate delegated{command}")
    return "; ".join(steps)


def _remedy_of(subject: Subject, layout: list[OperatorDetail]) -> Remedy:
    """Returns what takes those of them into the delegate that are outside."""
    return find_remedy(subject, [detail for detail in layout if not detail.row.is_delegated])


@rule("F2c", "layout churn", reads_operators=True)
def find_layout_churn(subject: Subject) -> Finding | None:
    """Moving data takes a large part of the inference."""
    movement = [detail for detail in subject.in_category("Data Movement") if not joins(detail)]
    if not subject.reaches(movement, subject.thresholds.layout_share):
        return None
    count = count_of(len(movement), "operator")
    action = _layout_action(subject, movement)
    summary = f"{count} that only move data: {subject.weigh(movement)}."
    remedy = _remedy_of(subject, movement)
    return Finding(
        "Layout churn", "high", summary, action, *subject.cost(movement), **remedy.fields
    )


@rule("F7", "more data movement than the reference", lambda s: s.answers, reads_operators=True)
def find_movement_above_reference(
    subject: Subject, answers: tuple[ReferenceAnswer, ...]
) -> Finding | None:
    """Data movement takes a larger share than in the reference."""
    movement = subject.in_category("Data Movement")
    excess = subject.exceeds_reference("Data Movement")
    if excess < subject.thresholds.reference_excess:
        return None
    return Finding(
        title="More data movement than in the reference",
        severity="medium",
        summary=(
            f"Data movement is {format_share(answers[0].share)} of an inference, in the reference "
            f"({subject.reference_name}) {format_share(answers[0].reference_share)}."
        ),
        evidence=subject.show(movement),
        claims=subject.claim(movement, min(excess / subject.share_of(movement), 1.0)),
        action="see F2: keep one layout and remove transposes and copies",
    )


def _data_flow(subject: Subject) -> MethodReport | None:
    report = subject.insight.experiment.program.report
    return report if report and report.has_data_flow else None


@rule("F2b", "transposes that undo each other", _data_flow, reads_operators=True)
def find_inverse_transposes(subject: Subject, report: MethodReport) -> Finding | None:
    """The second transpose of a pair gives back what the first one took."""
    pairs = find_inverse_pairs(report)
    measured = {
        location: detail for detail in subject.details if (location := _location_of(detail))
    }
    removable = [
        measured[location]
        for pair in pairs
        for location in _removable(pair)
        if location in measured
    ]
    if not subject.reaches(removable, subject.thresholds.pair_share):
        return None
    return Finding(
        title="Transposes that undo each other",
        severity="medium",
        summary=(
            f"{count_of(len(pairs), 'pair')} of transposes with the inverse permutation and only "
            f"elementwise operators between them: {subject.weigh(removable)}."
        ),
        evidence=tuple(_evidence(pair, measured) for pair in pairs[:SHOWN_ROWS]),
        claims=subject.claim(removable),
        action=_action(pairs, removable) + _merging(subject, pairs),
        ruled_out=(
            "another permutation: the second is the first one's inverse",
            "an operator between them that needs the layout: there is none",
        ),
    )


def _location_of(detail: OperatorDetail) -> Location | None:
    """Where the export's graph has this operator; None when it is not known."""
    if detail.attribution is None:
        return None
    return detail.row.instruction_id, detail.attribution.node


def _removable(pair: InversePair) -> tuple[Location, ...]:
    return (pair.second,) if pair.is_shared else (pair.first, pair.second)


def _evidence(pair: InversePair, measured: dict[Location, OperatorDetail]) -> EvidenceRow:
    sides = [measured.get(location) for location in (pair.first, pair.second)]
    names = [side.name if side else "not measured" for side in sides]
    times = [format_duration(times_of(side).mean_ns) for side in sides if side]
    facts = [
        f"permutation {pair.permutation}",
        f"{count_of(pair.between, 'operator')} between",
        *([" + ".join(times)] if times else []),
        *(["others read the first one's result too"] if pair.is_shared else []),
    ]
    return EvidenceRow(" … ".join(names), ", ".join(facts))


def _action(pairs: tuple[InversePair, ...], removable: list[OperatorDetail]) -> str:
    """Names the lines to change, where the export knows them."""
    lines = dict.fromkeys(detail.source for detail in removable if detail.source)
    where = ""
    if lines:
        where = (
            f". They come from {', '.join(list(lines)[:4])}: transposes that are not written there "
            "come from the export's decomposition of that line"
        )
    shared_count = sum(pair.is_shared for pair in pairs)
    shared = (
        f"; keep the first of {count_of(shared_count, 'pair')}, for others read it"
        if shared_count
        else ""
    )
    return (
        "remove both transposes of each pair: the operators between them are elementwise, so their "
        f"layout does not matter{shared}{where}"
    )


def _merging(subject: Subject, pairs: tuple[InversePair, ...]) -> str:
    """Gives the command of the rewrite, where it takes pairs out that this export did not.

    It follows transposes and reshapes in a row inside one delegate, and nothing else between them.
    """
    export = subject.insight.experiment.program.exported
    if export is None or MERGING in export.rewrites_left_out:
        return ""
    near = sum(pair.between == 0 and pair.first[1] is not None for pair in pairs)
    if not near or MERGING in {rewrite.name for rewrite in export.rewrites}:
        return ""
    return f": {command_for(subject, (), also=(MERGING,))} does it for {near} of {len(pairs)}"
