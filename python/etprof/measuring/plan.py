"""Plans process launches: blocks of all experiments, in an order that drift cannot favour."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from etprof.run.generation import Generation

Purpose = Literal["timing", "etdump", "kernel_trace"]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One way of running the model, at one thread count."""

    name: str
    """Unique in its run."""
    sme: str = "auto"
    threads: int = 1
    group: str = ""
    """Name without thread count: the folder. Empty: the name itself."""
    mode: Literal["timing", "kernel_trace"] = "timing"
    iterations: int = 20
    warmup: int = 10
    runner: Path | None = None
    launcher: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    extra_arguments: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of the folder that holds the experiment's files."""
        return self.group or self.name


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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to measure; the same for every experiment of a run."""

    blocks: int = 10
    min_seconds: float = 0.2
    etdump_iterations: int = 100
    seed: int = 0
    timeout_s: float = 3600.0
    cool_down_s: float = 0.0
    max_start_temperature_c: float | None = None
    max_wait_s: float = 300.0
    target_half_width: float | None = None
    """Stop early once every experiment's median is known within ± this fraction."""
    budget_s: float | None = None
    """Start no timing launch after this time."""
    generation: Generation | None = None
    """What each iteration generates; None: an iteration is one execution of the method."""
    kernel_trace: bool = False
    """Add an evidence pass to every timing experiment; needs trace runners."""


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
