"""Runs tasks on the hosts of a Dask cluster: one worker per host, its devices as resources.

Programs go to the workers and run directories come back as archives, so that the hosts need no
folder in common. Dask lets no device be used twice at once: every worker has one unit of each of
its devices, and every run needs it.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import UsageError
from etprof.base.units import be, count_of
from etprof.bench.archives import pack_program, unpack_run
from etprof.bench.execution import UnitOutcome, describe_error, keep_failure
from etprof.bench.remote import run_remotely

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from distributed import Client, Future

    from etprof.bench.pool import Reporter, Task

_CONNECT_S: Final = 10
_POLL_S: Final = 1
PATIENCE_S: Final = 60.0
"""How long a device may be missing before its runs fail."""


def run_on_cluster(
    tasks: Sequence[Task],
    address: str,
    reporter: Reporter,
    *,
    keep_going: bool = False,
    patience_s: float = PATIENCE_S,
) -> Generator[UnitOutcome]:
    """Yields each task's outcome as it comes. Closing the iterator takes back what waits.

    Raises UsageError when the scheduler cannot be reached or two workers offer one device.
    """
    client = _connect(address)
    try:
        waiting = _submit(client, tasks, keep_going=keep_going)
        count = len(waiting)
        reporter.say(f"{count_of(count, 'run')} {be(count)} with the scheduler at {address}")
        absent: dict[str, float] = {}
        while waiting:
            for future in _finished(client, waiting):
                yield _collect(waiting.pop(future), future)
            for future in _without_device(client, waiting, absent, patience_s):
                task = waiting.pop(future)
                future.cancel()
                device = task.unit.device.name
                yield _failed(
                    task,
                    f"no worker has offered the device {device!r} for {patience_s:g} s; "
                    f"start one with --resources '{device}=1'",
                )
        client.close()
    finally:
        # A run on a worker cannot be stopped from here: it ends by itself and is lost.
        client.close(timeout=_CONNECT_S)


def check_scheduler(address: str) -> None:
    """Raises UsageError for a scheduler that cannot be reached or must not be used."""
    client = _connect(address)
    try:
        _check_offers(_offers(client))
    finally:
        client.close()


def _connect(address: str) -> Client:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise UsageError("a pool of several hosts needs Dask: `pip install distributed`") from error
    try:
        return Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address}: {error}; start one with `dask scheduler`"
        ) from error


def _submit(client: Client, tasks: Sequence[Task], *, keep_going: bool) -> dict[Future[Any], Task]:
    """Hands every task to the scheduler, which waits for its device."""
    _check_offers(_offers(client))
    with warnings.catch_warnings():
        # Programs are large; they are meant to be part of the task, which outlives any worker.
        warnings.filterwarnings("ignore", message="Sending large graph")
        return {
            client.submit(
                run_remotely,
                task.unit,
                pack_program(task.program),
                task.program.name,
                keep_going=keep_going,
                resources={task.unit.device.name: 1},
                key=f"{task.unit.text} {time.time_ns()}",
                pure=False,
            ): task
            for task in tasks
        }


def _offers(client: Client) -> dict[str, dict[str, float]]:
    """Returns what each worker offers: its address, and the amount of each device."""
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return {address: dict(worker["resources"]) for address, worker in workers.items()}


def _check_offers(offers: Mapping[str, Mapping[str, float]]) -> None:
    """Raises UsageError when a device could be used twice at once."""
    amounts: dict[str, float] = {}
    for resources in offers.values():
        for device, amount in resources.items():
            amounts[device] = amounts.get(device, 0) + amount
    doubled = sorted(device for device, amount in amounts.items() if amount > 1)
    if doubled:
        raise UsageError(
            f"the workers offer {doubled[0]!r} {amounts[doubled[0]]:g} times, but a device runs "
            f"one thing at a time: give it to one worker, once (--resources '{doubled[0]}=1')"
        )


def _finished(client: Client, waiting: Mapping[Future[Any], Task]) -> list[Future[Any]]:
    """Waits a moment for runs to end and returns those that have."""
    from distributed import wait

    try:
        with client.as_current():
            done = wait([*waiting], timeout=_POLL_S, return_when="FIRST_COMPLETED").done
    except TimeoutError:
        return []
    return [future for future in waiting if future in done]


def _without_device(
    client: Client,
    waiting: Mapping[Future[Any], Task],
    absent: dict[str, float],
    patience_s: float,
) -> list[Future[Any]]:
    """Returns what waits for a device that has been away too long; `absent` is since when."""
    offered = {device for resources in _offers(client).values() for device in resources}
    required = {task.unit.device.name for task in waiting.values()}
    now = time.monotonic()
    for device in required - offered:
        absent.setdefault(device, now)
    for device in offered & absent.keys():
        del absent[device]
    lost = {device for device, since in absent.items() if now - since >= patience_s}
    return [future for future, task in waiting.items() if task.unit.device.name in lost]


def _collect(task: Task, future: Future[Any]) -> UnitOutcome:
    """Unpacks what a worker brought back; whatever went wrong there is a failed run here."""
    try:
        outcome: UnitOutcome
        outcome, archive = future.result()
        unpack_run(archive, task.run, task.program)
    # Dask raises what the worker raised, or says in its own words that the worker died.
    except Exception as error:  # noqa: BLE001
        return _failed(task, f"the worker failed: {describe_error(error)}")
    return replace(outcome, unit=task.unit)


def _failed(task: Task, reason: str) -> UnitOutcome:
    return UnitOutcome(task.unit, keep_failure(task.unit, task.run, reason))
