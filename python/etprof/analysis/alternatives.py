"""Several runs as answers to one question: what each is worth, and which no other one beats."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from etprof.analysis.compare.comparability import Side, find_differences
from etprof.analysis.compare.comparison import compare_sides
from etprof.base.text import clean
from etprof.run.accuracy import export_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight
    from etprof.run.accuracy import Verdict
    from etprof.statistics.effect import Effect
    from etprof.statistics.summary import BlockedMedian


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
            each
            for each in self.assessment.run.verdicts
            if each.question == "precision" and each.where in places and each.answer != "unknown"
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

        Latencies differ where their intervals (with few launches: all launches) are apart. What is
        not known is the worst.
        """
        if self.peer_group != other.peer_group or self.is_wrong:
            return False
        own, its = self._merits, other._merits
        is_worse = any(mine[1] < theirs[0] for mine, theirs in zip(own, its, strict=True))
        is_better = any(mine[0] > theirs[1] for mine, theirs in zip(own, its, strict=True))
        return other.is_wrong or (is_better and not is_worse)

    @cached_property
    def _merits(self) -> tuple[tuple[float, float], ...]:
        """From where to where each figure lies, more being better."""
        speed = -math.inf, -math.inf
        if self.latency is not None:
            medians, interval = self.latency.block_medians, self.latency.interval
            low, high = (interval.low, interval.high) if interval else (min(medians), max(medians))
            speed = -high, -low
        elif not self.assessment.run.is_timed:
            speed = (self.coverage or 0.0,) * 2
        likeness = _likeness_db(self.accuracy) if self.accuracy else -math.inf
        size = -math.inf if self.size_bytes is None else -float(self.size_bytes)
        return speed, (likeness, likeness), (size, size)


def _likeness_db(verdict: Verdict) -> float:
    return math.inf if verdict.snr_db is None else verdict.snr_db


def alternatives_of(assessments: Sequence[Assessment]) -> tuple[Alternative, ...]:
    """Returns the runs as alternatives, in their order."""
    names = _names(assessments)
    return tuple(
        Alternative(number, name, each, _against(assessments[0], each) if number > 1 else None)
        for number, (each, name) in enumerate(zip(assessments, names, strict=True), start=1)
    )


def unbeaten(found: Sequence[Alternative]) -> tuple[bool, ...]:
    """Says of each whether no other of the same model on the same machine beats it."""
    return tuple(
        not each.is_wrong and not any(other.beats(each) for other in found) for each in found
    )


def _against(first: Assessment, other: Assessment) -> Effect | None:
    sides = [
        Side(each.run, each.primary.experiment, each.run.manifest)
        for each in (first, other)
        if each.is_split and each.run.is_timed and not each.run.wrong
    ]
    if len(sides) < 2 or find_differences(*sides):
        return None
    return compare_sides(*sides).latency


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
    words: list[list[str]] = [[str(_FACTS[0](each))] for each in assessments]
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
