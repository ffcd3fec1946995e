"""Worker processes that run cases, each watched: one that hangs or dies is named and replaced."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from tests.hostile.cases import Result, Workshop
from tests.hostile.damage import SPARSE_BYTES

LONGEST_S: Final = 10.0
_READY_S: Final = 120.0
_LARGEST_CROWD: Final = 6.0
"""Processes for each processor: a case that gets a sixth of one may take six times as long."""
_MEMORY_BYTES: Final = SPARSE_BYTES - 2**27
"""What a case may take on top of what the worker has: less than the largest file it is given."""
_HANG: Final = "hang"
_STACK: Final = "stack.txt"
_NATIVE: Final = "native.txt"
"""What a worker prints where no stand-in catches it, a crash's last words among it."""

Case = tuple[str, int]


def _work(
    connection: Connection, scratch: Path, seed: int, longest_s: float, *, with_torch: bool
) -> None:
    """Runs cases as they come; the first message out says that the seeds are made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(scratch / _NATIVE, os.O_WRONLY | os.O_CREAT, 0o600), 2)
    workshop = Workshop(scratch, seed, with_torch=with_torch)
    _limit()
    with (scratch / _STACK).open("w") as stack:
        connection.send(None)
        while (case := connection.recv()) is not None:
            stack.seek(0)
            stack.truncate()
            faulthandler.dump_traceback_later(longest_s * 0.9, file=stack)
            result = workshop.run(*case)
            faulthandler.cancel_dump_traceback_later()
            connection.send(result)


def _limit() -> None:
    """Bounds memory, so that a bomb is an error and not the machine's end.

    What is written counts, not what is mapped: a large ETDump is mapped and never read whole.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmData:\s*(\d+) kB", status)
    assert found is not None
    largest = int(found[1]) * 1024 + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (largest, largest))


@dataclass
class _Worker:
    """One process, what it is at, and since when."""

    seed: int
    longest_s: float
    with_torch: bool
    scratch: Path = field(init=False)
    process: SpawnProcess = field(init=False)
    connection: Connection = field(init=False)
    case: Case | None = None
    since: float = 0.0
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Starts the process, in a scratch folder of its own."""
        context = multiprocessing.get_context("spawn")
        self.scratch = Path(tempfile.mkdtemp(prefix="hostile-"))
        self.connection, other = context.Pipe()
        self.process = context.Process(
            target=_work,
            args=(other, self.scratch, self.seed, self.longest_s),
            kwargs={"with_torch": self.with_torch},
            daemon=True,
        )
        self.process.start()
        other.close()
        self.case, self.since, self.is_ready = None, time.monotonic(), False

    def give(self, case: Case) -> None:
        """Has the worker run a case."""
        self.case, self.since = case, time.monotonic()
        self.connection.send(case)

    def seconds_left(self) -> float:
        """Until the worker's time is over; where others wait for processors too, it is more."""
        crowd = min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), _LARGEST_CROWD)
        longest_s = self.longest_s * crowd if self.is_ready else _READY_S
        return self.since + longest_s - time.monotonic()

    def stop(self) -> None:
        """Ends the process, whatever it is at, and removes its files."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _read(self, name: str) -> str:
        path = self.scratch / name
        return path.read_text(errors="replace") if path.exists() else ""

    def failure(self, what: str) -> Result:
        """Returns a result for a case that has none."""
        kind, number = self.case or ("", -1)
        stack, native = (self._read(name) for name in (_STACK, _NATIVE))
        lines = [line.strip() for line in stack.splitlines() if line.startswith("  File")]
        own = [line for line in lines if "/etprof/" in line and "/tests/" not in line]
        place = own[0].partition("/python/etprof/")[2] or own[0] if own else "outside etprof"
        text = f"{what}: {' < '.join((own or lines)[:4])} {native[-400:]!r}"
        return Result(
            kind, number, "?", "?", "?", (-1,), self.longest_s, ((f"{what} {place}", text),)
        )


def run_cases(
    cases: Iterable[Case],
    *,
    workers: int,
    until: Callable[[], bool],
    seed: int = 0,
    longest_s: float = LONGEST_S,
    with_torch: bool = False,
) -> Iterator[Result]:
    """Yields the result of every case, in the order in which they end, until `until` says so.

    With torch they are of the kinds that need it, and of no others. A case is the same whenever it
    is run: one that takes too long is run again, and is a hang when it takes too long again. Else
    it was the machine that stood still.
    """
    waiting = iter(cases)
    again: list[Case] = []
    doubted: set[Case] = set()
    pool = [_Worker(seed, longest_s, with_torch) for _ in range(workers)]
    try:
        busy = list(pool)
        while busy:
            for worker in _answering(busy):
                result = _take(worker)
                if result is not None and _is_doubtful(result, doubted):
                    again.append((result.kind, result.number))
                elif result is not None:
                    yield result
                if not worker.is_ready:
                    continue
                case = again.pop() if again else None if until() else next(waiting, None)
                if case is None:
                    busy.remove(worker)
                else:
                    worker.give(case)
    finally:
        for worker in pool:
            worker.stop()


def _is_doubtful(result: Result, doubted: set[Case]) -> bool:
    """Whether a case took too long for the first time; it is told, and counted as doubted."""
    case = (result.kind, result.number)
    if not (result.breaches and result.breaches[0][0].startswith(_HANG)) or case in doubted:
        return False
    doubted.add(case)
    print(f"{result.kind}:{result.number} runs again: {result.breaches[0][1]}", file=sys.stderr)
    return True


def _answering(busy: list[_Worker]) -> list[_Worker]:
    """Returns the workers that said something, died, or took too long."""
    left = max(0.0, min(worker.seconds_left() for worker in busy))
    found = wait([worker.connection for worker in busy], timeout=left)
    return [worker for worker in busy if worker.connection in found or worker.seconds_left() <= 0]


def _take(worker: _Worker) -> Result | None:
    """Returns what a worker has to say; one that cannot say anything is replaced."""
    try:
        if worker.connection.poll():
            result: Result | None = worker.connection.recv()
            worker.is_ready = True
            return result
        what = _HANG
    except (EOFError, OSError):
        worker.process.join()
        what = f"worker ended with {worker.process.exitcode}"
    if not worker.is_ready:
        msg = f"a worker could not start: {worker.failure(what)}"
        raise RuntimeError(msg)
    result = worker.failure(what)
    worker.stop()
    worker.start()
    return result
