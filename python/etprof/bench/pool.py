"""What a pool of devices takes and tells, whoever runs it."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from etprof.base.process import CommandStop, CommandStopped, stoppable
from etprof.bench.execution import Outcome, Stopped, run_unit
from etprof.measuring.configured import Listener
from etprof.targets.device_lock import patience

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from etprof.bench.combinations import Unit
    from etprof.bench.execution import Outcome
    from etprof.targets.device_lock import Holder, MeasuredDevice


@dataclass(frozen=True)
class Task:
    """A unit with its program and the folder of its run."""

    unit: Unit
    program: Path
    run: Path


class Reporter(Protocol):
    """Is told how a matrix goes on, from any thread."""

    def say(self, text: str) -> None:
        """Something that people should read."""

    def step(self, unit: Unit, text: str, done: int, total: int) -> None:
        """A launch of a unit starts."""

    def finished(self, outcome: Outcome) -> None:
        """A unit has ended, well or not."""


_PAUSE_S: Final = 0.2


@dataclass
class _Message:
    """An outcome on its way to whoever asked; None when a thread has ended."""

    outcome: Outcome | None
    handled: threading.Event = field(default_factory=threading.Event)


def run_here(
    tasks: Sequence[Task],
    reporter: Reporter,
    *,
    resume: bool,
    wait: bool = True,
    keep_going: bool = False,
) -> Generator[Outcome]:
    """Yields each task's outcome as it comes; devices work side by side, each alone.

    Without `wait`, a run whose device another process has is a failed one.

    The next run on this host's CPU waits until the outcome before it has been dealt with, so that
    dealing with it disturbs no measurement. Closing the iterator stops the runs; they can be
    resumed.
    """
    how = {"resume": resume, "keep_going": keep_going}
    devices = [_Device(own, reporter, how, wait=wait) for own in _by_device(tasks)]
    outbox = queue.SimpleQueue[_Message]()
    threads = [threading.Thread(target=device.serve, args=(outbox,)) for device in devices]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            message = outbox.get()
            if message.outcome is None:
                running -= 1
            else:
                yield message.outcome
            message.handled.set()
    finally:
        for device in devices:
            device.stop.set()
        for thread in threads:
            thread.join()


def _by_device(tasks: Sequence[Task]) -> list[list[Task]]:
    """Groups tasks by what must not do two things at once: a phone, or this host's CPU."""
    groups: dict[str | None, list[Task]] = {}
    for task in tasks:
        device = task.unit.device
        groups.setdefault(None if device.is_on_host else device.name, []).append(task)
    return list(groups.values())


class _Device:
    """Runs the tasks of one device in turn, in a thread of its own."""

    def __init__(
        self, tasks: Sequence[Task], reporter: Reporter, how: dict[str, bool], *, wait: bool
    ) -> None:
        self._tasks, self._reporter, self._how, self._wait = tasks, reporter, how, wait
        self.stop = CommandStop()

    def serve(self, outbox: queue.SimpleQueue[_Message]) -> None:
        """Puts an outcome per task into `outbox`, then one message without."""
        try:
            self._serve(outbox)
        except (Stopped, CommandStopped):
            # Whoever stopped us does not wait for an outcome.
            return
        finally:
            outbox.put(_Message(None))

    def _serve(self, outbox: queue.SimpleQueue[_Message]) -> None:
        with stoppable(self.stop):
            for task in self._tasks:
                message = _Message(self._run(task))
                outbox.put(message)
                while task.unit.device.is_on_host and not message.handled.wait(_PAUSE_S):
                    self._check()

    def _run(self, task: Task) -> Outcome:
        def step(text: str, done: int, total: int) -> None:
            self._check()
            self._reporter.step(task.unit, text, done, total)

        known = patience(self._reporter.say, wait=self._wait)

        def waiting(device: MeasuredDevice, holder: Holder) -> None:
            step(f"waiting for {device.name}", 0, 1)
            known(device, holder)

        listener = Listener(self._reporter.say, step, waiting)
        return run_unit(task.unit, task.program, task.run, listener, **self._how)

    def _check(self) -> None:
        if self.stop.is_set():
            raise Stopped
