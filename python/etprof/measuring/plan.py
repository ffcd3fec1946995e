"""Plans process launches: blocks of all experiments, in an order that drift cannot favour."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etprof.run.manifest import Experiment, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Experiment", "Launch", "Purpose", "Settings", "plan_passes", "plan_timing"]
Purpose = Literal["timing", "etdump", "kernel_trace"]


@dataclass(frozen=True)
class Launch:
    """One process launch: which experiment, what for, and its how-manieth block."""

    experiment: Experiment
    purpose: Purpose
    block: int | None = None

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """What distinguishes this launch from all others of the run."""
        return (self.experiment.name, self.purpose, self.block)

    @property
    def text(self) -> str:
        """The launch in words, for progress and logs."""
        what = {"etdump": "operator split", "kernel_trace": "kernel trace"}
        words = what.get(self.purpose) or f"block {(self.block or 0) + 1}"
        return f"{self.experiment.name}: {words}"


def plan_timing(experiments: Sequence[Experiment], settings: Settings) -> list[Launch]:
    """Orders the timing blocks of all experiments that are timed.

    Blocks come in pairs: a random order of the experiments, then the same order reversed (ABBA),
    so that a drift that is linear in time cancels within each pair.
    """
    chooser = random.Random(settings.seed)  # noqa: S311 - an order for an experiment, no secret
    order = [experiment for experiment in experiments if experiment.mode == "timing"]
    launches: list[Launch] = []
    for block in range(settings.blocks):
        if block % 2 == 0:
            chooser.shuffle(order)
        else:
            order.reverse()
        launches += [Launch(experiment, "timing", block) for experiment in order]
    return launches


def plan_passes(experiments: Sequence[Experiment], settings: Settings) -> Iterator[Launch]:
    """Yields the launches with instruments, which come after all timing: never two in one."""
    for experiment in experiments:
        if experiment.mode == "timing":
            yield Launch(experiment, "etdump")
        if experiment.mode == "kernel_trace" or settings.kernel_trace:
            yield Launch(experiment, "kernel_trace")
