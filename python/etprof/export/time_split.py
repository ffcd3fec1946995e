"""Splits the time of an export: its stages, measured, and the steps in them, from samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etprof.export.stages import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.export.stages import StackSample, StageTime


@dataclass(frozen=True)
class TimeSlice:
    """A stretch of time in which a step was running."""

    path: tuple[Step, ...]
    """The stage, the steps around this one, and itself."""
    start_ns: int
    duration_ns: int


@dataclass
class Share:
    """All the time of a step in the same place, with the steps in it, the first one first."""

    step: Step
    duration_ns: int = 0
    parts: dict[Step, Share] = field(default_factory=dict)

    def own_ns(self) -> int:
        """Returns the time that none of its parts accounts for."""
        return self.duration_ns - sum(part.duration_ns for part in self.parts.values())


def slice_time(stages: Sequence[StageTime], samples: Sequence[StackSample]) -> Iterator[TimeSlice]:
    """Yields each stage and then the steps in it."""
    for stage in stages:
        end_ns = stage.start_ns + stage.duration_ns
        path = (Step(stage.name, ""),)
        yield TimeSlice(path, stage.start_ns, stage.duration_ns)
        inside = [each for each in samples if stage.start_ns < each.time_ns <= end_ns]
        yield from _slice_stage(path, stage.start_ns, inside)


def _slice_stage(
    path: tuple[Step, ...], start_ns: int, samples: Sequence[StackSample]
) -> Iterator[TimeSlice]:
    """Yields the steps of a stage; a step lasts as long as every look in a row finds it.

    A sample stands for the time since the one before: a call that lets nobody look is seen at its
    end. What comes after the last sample is the stage's alone.
    """
    open_path, starts = path, [start_ns]
    at_ns = start_ns
    for sample in (*samples, None):
        found = path if sample is None else (*path, *sample.steps)
        kept = _common_length(open_path, found)
        for depth in range(len(open_path), kept, -1):
            yield TimeSlice(open_path[:depth], starts[depth - 1], at_ns - starts[depth - 1])
        starts[kept:] = [at_ns] * (len(found) - kept)
        open_path = found
        at_ns = at_ns if sample is None else sample.time_ns


def _common_length(first: Sequence[Step], second: Sequence[Step]) -> int:
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (one, other) in enumerate(pairs) if one != other),
        min(len(first), len(second)),
    )


def sum_shares(slices: Sequence[TimeSlice]) -> Share:
    """Returns the whole export, with its stages, and in each the steps in it."""
    root = Share(Step("export", ""))
    for each in sorted(slices, key=lambda one: (one.start_ns, len(one.path))):
        share = root
        for step in each.path:
            share = share.parts.setdefault(step, Share(step))
        share.duration_ns += each.duration_ns
    root.duration_ns = sum(stage.duration_ns for stage in root.parts.values())
    return root
