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

_CHOSEN = frozenset({"threads", "cores"})
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
        """The experiment; None where no operator split was recorded."""
        return self.assessment.primary if self.assessment.is_split else None

    @cached_property
    def latency(self) -> BlockedMedian | None:
        """Of an inference, without event tracer; None where it was not timed so, or proves nothing."""
        found = self.insight.experiment.latency if self.insight else None
        is_proven = self.assessment.run.is_timed and found is not None and not found.is_traced
        return found.steady if found and is_proven else None

    @cached_property
    def coverage(self) -> float | None:
        """Share of the multiply-accumulates in operators on SME; None where they are not known.

        That is counted calls, or the operator's type where nobody counted.
        """
        macs = Counter[bool]()
        for each in self.insight.details if self.insight else ():
            found = each.attribution.macs if each.attribution else None
            macs[each.evidence.route.answer in {"proven", "named"}] += found or 0
        return macs[True] / macs.total() if macs.total() else None

    @cached_property
    def accuracy(self) -> Verdict | None:
        """How near the float32 model it is, at its worst; None where nobody asked."""
        program = self.insight.experiment.program.name if self.insight else ""
        places = {export_place(program)}
        if self.insight:
            places.add(self.insight.experiment.name)
        asked = [
            verdict
            for verdict in self.assessment.run.verdicts
            if verdict.question == "precision"
            and verdict.where in places
            and verdict.answer != "unknown"
        ]
        return min(asked, key=_likeness_db, default=None)

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

    def beats(self, other: Alternative) -> bool:
        """Whether nothing speaks for the other: this is better in one thing, and worse in none.

        By the figures of these runs: latencies differ where both were measured alike and no launch
        of one was as fast as any of the other. What is not known is the worst, but for a latency:
        nobody is faster or slower than that.
        """
        if self.peer_group != other.peer_group or self.is_wrong:
            return False
        mine, theirs = self._launches_ns, other._launches_ns
        is_judged = mine and theirs and are_alike(self.assessment, other.assessment)
        is_faster = bool(is_judged) and max(mine) < min(theirs)
        is_slower = bool(is_judged) and min(mine) > max(theirs)
        own, its = self._merits, other._merits
        is_worse = is_slower or any(a < b for a, b in zip(own, its, strict=True))
        is_better = is_faster or any(a > b for a, b in zip(own, its, strict=True))
        return other.is_wrong or (is_better and not is_worse)

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
            number, name, each, compare_latency(assessments[0], each) if number > 1 else None
        )
        for number, (each, name) in enumerate(zip(assessments, names, strict=True), start=1)
    )


def unbeaten(found: Sequence[Alternative]) -> tuple[bool, ...]:
    """Says of each whether no other of the same model on the same machine beats it."""
    return tuple(
        not each.is_wrong and not any(other.beats(each) for other in found) for each in found
    )


def _side(assessment: Assessment) -> Side:
    return Side(assessment.run, assessment.primary.experiment, assessment.run.manifest)


def are_alike(one: Assessment, other: Assessment) -> bool:
    """Whether two runs with operator splits were measured alike, but for threads and cores."""
    return all(
        difference.field in _CHOSEN for difference in find_differences(_side(one), _side(other))
    )


def compare_latency(first: Assessment, other: Assessment) -> Effect | None:
    """Holds a run's latency against another's; None unless both were measured alike."""
    both = (first, other)
    if not all(each.is_split and each.run.is_timed and not each.run.wrong for each in both):
        return None
    sides = [_side(each) for each in both]
    if not all(side.timed for side in sides) or not are_alike(*both):
        return None
    ledger = build_ledger_of_runs(
        SeparateRuns(sides[0].timed, sides[1].timed, {}), margin=DEFAULT_MARGIN
    )
    return next((entry.effect for entry in ledger if entry.label == STEADY_ENTRY), None)


def _folder(depth: int, assessment: Assessment) -> str | None:
    """The name of the run's folder, or of one that it is in."""
    parts = str(assessment.run.source).split("/")
    return clean(parts[-depth]) if depth <= len(parts) else None


_FACTS: tuple[Callable[[Assessment], object], ...] = (
    lambda each: each.run.name,
    lambda each: each.run.manifest and each.run.manifest.model.precision,
    lambda each: each.run.manifest and each.run.manifest.model.backend,
    lambda each: each.run.manifest and each.run.manifest.platform,
    lambda each: each.run.manifest and each.run.manifest.cpu and each.run.manifest.cpu.model_name,
    lambda each: each.primary.experiment.name if each.is_split else None,
    *(partial(_folder, depth) for depth in range(1, 5)),
)
"""What tells runs apart, the plainest first."""


def _names(assessments: Sequence[Assessment]) -> list[str]:
    """Names each run by the model, and by what is not the same in all until names differ."""
    words: list[list[str]] = [[str(_FACTS[0](assessment))] for assessment in assessments]
    for read in _FACTS[1:]:
        if len({*map(tuple, words)}) == len(words):
            break
        values = [read(each) for each in assessments]
        if len({*map(str, values)}) > 1:
            for own, value in zip(words, values, strict=True):
                own.extend([str(value)] if value else [])
    return list(_numbered([" ".join(own) for own in words]))


def _numbered(names: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        before = names[:place].count(name)
        yield f"{name} ({before + 1})" if before else name
