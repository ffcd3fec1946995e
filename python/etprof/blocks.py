"""Plans process launches: blocks of all experiments, in an order that drift cannot favour."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Experiment:
    """One way of running the model."""

    name: str
    sme: str
    threads: int | None = None


@dataclass(frozen=True)
class Launch:
    """One process launch for timing: which experiment, and its how-manieth block."""

    experiment: Experiment
    block: int


def plan_launches(experiments: Sequence[Experiment], blocks: int, seed: int) -> list[Launch]:
    """Orders `blocks` launches of each experiment.

    Blocks come in pairs: a random order of the experiments, then the same order reversed (ABBA),
    so that a drift that is linear in time cancels within each pair.
    """
    chooser = random.Random(seed)  # noqa: S311 - an order for an experiment, not a secret
    launches: list[Launch] = []
    order = list(experiments)
    for block in range(blocks):
        if block % 2 == 0:
            chooser.shuffle(order)
        else:
            order.reverse()
        launches += [Launch(experiment, block) for experiment in order]
    return launches
