"""Several runs as answers to one question: what each is worth, and which no other one beats."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from etprof.analysis.compare.comparability import Side, find_differences
from etprof.analysis.compare.comparison import STEADY_ENTRY
from etprof.analysis.split.cold_start import SeparateRuns, build_ledger_of_runs
from etprof.base.text import clean
from etprof.run.accuracy import export_place
from etprof.statistics.effect import DEFAULT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight
    from etprof.run.accuracy import Verdict
    from etprof.statistics.effect import Effect
    from etprof.statistics.summary import BlockedMedian

_FREE_SETTINGS = frozenset({"threads", "cores"})
"""Settings among which one chooses; every other one has to be alike where latencies are judged."""


@dataclass(frozen=True)
class Alternative:
    """A run among others, by the experiment that its own headline is about."""

    number: int
    """Its place among them, from 1 on."""
    name: str
    """What tells it from the others."""
    assessment: Assessment
    against_first: Effect | None
    """Its latency beside the first run's; None unless both were measured alike."""

    @property
    def insight(self) -> ExperimentInsight | None:
        """The experiment; None where no per-operator breakdown was recorded."""
        return self.assessment.primary if self.assessment.is_split else None

    @cached_property
    def latency(self) -> BlockedMedian | None:
        """Of an inference, without event tracer; None where it was not timed so, or proves nothing."""
        latency = self.insight.experiment.latency if self.insight else None
        is_proven = self.assessment.run.is_timed and latency is not None and not latency.is_traced
        return latency.steady if latency and is_proven else None

    @cached_property
    def coverage(self) -> float | None:
        """Share of the multiply-accumulates in operators on SME; None where they are not known.

        That is counted calls, or the operator's type where nobody counted.
        """
        macs = Counter[bool]()
        for detail in self.insight.details if self.insight else ():
            operator_macs = detail.attribution.macs if detail.attribution else None
            macs[detail.evidence.route.answer in {"proven", "named"}] += operator_macs or 0
        return macs[True] / macs.total() if macs.total() else None

    @cached_property
    def accuracy(self) -> Verdict | None:
        """How near the float32 model it is, at its worst; None where nobody asked."""
        program = self.insight.experiment.program.name if self.insight else ""
        locations = {export_place(program)}
        if self.insight:
            locations.add(self.insight.experiment.name)
        verdicts = [
            verdict
            for verdict in self.assessment.run.verdicts
            if verdict.question == "precision"
            and verdict.where in locations
            and verdict.answer != "unknown"
        ]
        return min(verdicts, key=_likeness_db, default=None)

    @property
    def size_bytes(self) -> int | None:
        """Of the program, with weights in a file of their own."""
        model = self.insight.experiment.program.model if self.insight else None
        if model is None or model.size_bytes is None:
            return None
        return model.size_bytes + ((model.data.size_bytes or 0) if model.data else 0)

    @property
    def peer_group(self) -> tuple[object, ...]:
        """What those have in common that can take each other's place: model and machine."""
        manifest = self.assessment.run.manifest
        if manifest is None:
            return (self.number,)
        cpu = manifest.cpu and (manifest.cpu.model_name, manifest.cpu.architecture)
        device = manifest.target.get("serial") or manifest.target.get("model")
        is_timed = self.assessment.run.is_timed
        return manifest.model.name, manifest.platform, cpu, str(device), is_timed

    @property
    def kind(self) -> str:
        """The same for people: model and platform."""
        manifest = self.assessment.run.manifest
        model = self.assessment.run.name if manifest is None else manifest.model.name
        return f"{model} on {manifest.platform}" if manifest else model

    @property
    def is_wrong(self) -> bool:
        """Whether its outputs are wrong, so that nothing else of it counts."""
        return bool(self.assessment.run.wrong)

    def beats(self, rival: Alternative) -> bool:
        """Whether this run dominates `rival`: better in one respect, and worse in none.

        By the figures of these runs: latencies differ where both were measured alike and no launch
        of one was as fast as any of the other. What is not known is the worst, but for a latency:
        nobody is faster or slower than that.
        """
        if self.peer_group != rival.peer_group or self.is_wrong:
            return False
        mine, theirs = self._launches_ns, rival._launches_ns
        is_judged = mine and theirs and are_alike(self.assessment, rival.assessment)
        is_faster = bool(is_judged) and max(mine) < min(theirs)
        is_slower = bool(is_judged) and min(mine) > max(theirs)
        merits, rival_merits = self._merits, rival._merits
        is_worse = is_slower or any(a < b for a, b in zip(merits, rival_merits, strict=True))
        is_better = is_faster or any(a > b for a, b in zip(merits, rival_merits, strict=True))
        return rival.is_wrong or (is_better and not is_worse)

    @property
    def _launches_ns(self) -> tuple[float, ...]:
        return self.latency.block_medians if self.latency else ()

    @cached_property
    def _merits(self) -> tuple[float, ...]:
        """What is known without a clock, more being better."""
        likeness = _likeness_db(self.accuracy) if self.accuracy else -math.inf
        size = -math.inf if self.size_bytes is None else -float(self.size_bytes)
        coverage = 0.0 if self.assessment.run.is_timed else self.coverage or 0.0
        return coverage, likeness, size


def _likeness_db(verdict: Verdict) -> float:
    return math.inf if verdict.snr_db is None else verdict.snr_db


def alternatives_of(assessments: Sequence[Assessment]) -> tuple[Alternative, ...]:
    """Returns the runs as alternatives, in their order."""
    names = _names(assessments)
    return tuple(
        Alternative(
            number,
            name,
            assessment,
            compare_latency(assessments[0], assessment) if number > 1 else None,
        )
        for number, (assessment, name) in enumerate(zip(assessments, names, strict=True), start=1)
    )


def unbeaten(alternatives: Sequence[Alternative]) -> tuple[bool, ...]:
    """Returns for each run whether no other of the same model on the same machine beats it."""
    return tuple(
        not alternative.is_wrong and not any(rival.beats(alternative) for rival in alternatives)
        for alternative in alternatives
    )


def _side(assessment: Assessment) -> Side:
    return Side(assessment.run, assessment.primary.experiment, assessment.run.manifest)


def are_alike(first: Assessment, second: Assessment) -> bool:
    """Whether two runs with per-operator breakdowns were measured alike, but for threads and cores."""
    return all(
        difference.field in _FREE_SETTINGS
        for difference in find_differences(_side(first), _side(second))
    )


def compare_latency(first: Assessment, second: Assessment) -> Effect | None:
    """Compares the latencies of two runs; None unless both were measured alike."""
    both = (first, second)
    if not all(
        assessment.is_split and assessment.run.is_timed and not assessment.run.wrong
        for assessment in both
    ):
        return None
    sides = [_side(assessment) for assessment in both]
    if not all(side.timed for side in sides) or not are_alike(*both):
        return None
    ledger = build_ledger_of_runs(
        SeparateRuns(sides[0].timed, sides[1].timed, {}), margin=DEFAULT_MARGIN
    )
    return next((quantity.effect for quantity in ledger if quantity.label == STEADY_ENTRY), None)


def _folder(depth: int, assessment: Assessment) -> str | None:
    """The name of the run's folder, or of one that it is in."""
    folders = str(assessment.run.source).split("/")
    return clean(folders[-depth]) if depth <= len(folders) else None


_FACTS: tuple[Callable[[Assessment], object], ...] = (
    lambda assessment: assessment.run.name,
    lambda assessment: assessment.run.manifest and assessment.run.manifest.model.precision,
    lambda assessment: assessment.run.manifest and assessment.run.manifest.model.backend,
    lambda assessment: assessment.run.manifest and assessment.run.manifest.platform,
    lambda assessment: (
        assessment.run.manifest
        and assessment.run.manifest.cpu
        and assessment.run.manifest.cpu.model_name
    ),
    lambda assessment: assessment.primary.experiment.name if assessment.is_split else None,
    *(partial(_folder, depth) for depth in range(1, 5)),
)
"""What tells runs apart, the plainest first."""


def _names(assessments: Sequence[Assessment]) -> list[str]:
    """Names each run by the model, and by what is not the same in all until names differ."""
    labels: list[list[str]] = [[str(_FACTS[0](assessment))] for assessment in assessments]
    for fact_of in _FACTS[1:]:
        if len({*map(tuple, labels)}) == len(labels):
            break
        values = [fact_of(assessment) for assessment in assessments]
        if len({*map(str, values)}) > 1:
            for label, value in zip(labels, values, strict=True):
                label.extend([str(value)] if value else [])
    return list(_numbered([" ".join(label) for label in labels]))


def _numbered(names: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        before = names[:index].count(name)
        yield f"{name} ({before + 1})" if before else name
