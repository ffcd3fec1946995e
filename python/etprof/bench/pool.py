"""The interface of a pool of devices, in threads here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from etprof.base.process import CommandStop, stoppable
from etprof.bench.execution import MatrixStopped, UnitOutcome, run_unit
from etprof.measuring.configured import Listener
from etprof.targets.device_lock import patience

if TYPE_CHECKING:
    from etprof.bench.combinations import Unit
    from etprof.targets.device_lock import Holder, MeasuredDevice


@dataclass(frozen=True)
class Task:
    """A unit with its program and the folder of its run."""

    unit: Unit
    program: Path
    run: Path


class Reporter(Protocol):
    """Receives the progress of a matrix, from any thread."""

    def say(self, text: str) -> None:
        """Something that people should read."""

    def step(self, unit: Unit, text: str, done: int, total: int) -> None:
        """A launch of a unit starts."""

    def finished(self, outcome: UnitOutcome) -> None:
        """A unit has ended, well or not."""


def run_here(
    tasks: Sequence[Task],
    reporter: Reporter,
    *,
    resume: bool,
    wait: bool = True,
    keep_going: bool = False,
) -> Generator[UnitOutcome]:
    """Yields each task's outcome as it comes; devices work side by side, each alone.

    Without `wait`, a run whose device another process has is a failed one.

    The next run on this host's CPU waits until the outcome before it has been dealt with, so that
    dealing with it disturbs no measurement. Closing the iterator stops the runs; they can be
    resumed.
    """
    stop = CommandStop()

    def run(task: Task) -> UnitOutcome:
        def step(text: str, done: int, total: int) -> None:
            if stop.is_set():
                raise MatrixStopped
            reporter.step(task.unit, text, done, total)

        announce = patience(reporter.say, wait=wait)

        def waiting(device: MeasuredDevice, holder: Holder) -> None:
            step(f"waiting for {device.name}", 0, 1)
            announce(device, holder)

        listener = Listener(reporter.say, step, waiting)
        with stoppable(stop):
            return run_unit(
                task.unit, task.program, task.run, listener, resume=resume, keep_going=keep_going
            )

    workers: list[ThreadPoolExecutor] = []
    running: dict[Future[UnitOutcome], Callable[[], None]] = {}

    def start(worker: ThreadPoolExecutor, device_tasks: Sequence[Task]) -> None:
        """Gives a device its tasks; the host's one by one, each once the last is dealt with."""
        is_on_host = device_tasks[0].unit.device.is_on_host if device_tasks else False
        for task in device_tasks[: 1 if is_on_host else None]:
            remaining = device_tasks[1:] if is_on_host else ()
            running[worker.submit(run, task)] = partial(start, worker, remaining)

    try:
        for device_tasks in _by_device(tasks):
            workers.append(ThreadPoolExecutor(1))
            start(workers[-1], device_tasks)
        while running:
            for future in futures.wait(running, return_when=futures.FIRST_COMPLETED).done:
                start_next = running.pop(future)
                yield future.result()
                start_next()
    finally:
        stop.set()
        for worker in workers:
            worker.shutdown(cancel_futures=True)


def _by_device(tasks: Sequence[Task]) -> list[list[Task]]:
    """Groups tasks by what must not do two things at once: a phone, or this host's CPU."""
    groups: dict[str | None, list[Task]] = {}
    for task in tasks:
        device = task.unit.device
        groups.setdefault(None if device.is_on_host else device.name, []).append(task)
    return list(groups.values())
