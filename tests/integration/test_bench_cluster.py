"""A pool of two hosts, played by two Dask workers: each has its own devices and its own locks."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from etprof.base.process import Completed, run_command
from etprof.run.manifest import load_manifest

pytest.importorskip("distributed", reason="needs Dask: pip install distributed")

DEVICES = ("red", "green", "blue")
WORKERS = {"one": ("red",), "two": ("green", "blue")}
MEASUREMENT = {"blocks": 6, "runs": 5, "warmup": 2, "min_seconds": 0.05, "etdump_runs": 2}
STARTING_S = 120


class Pool:
    """A scheduler and workers as a user starts them, each a process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--scheduler-file", file)
        self._await(file.exists)
        self.address = json.loads(file.read_text())["address"]

    def _start(self, kind: str, *words: object, locks: str = "none") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, words)]
        log = self._stack.enter_context((self.folder / f"{kind}_{locks}.log").open("wb"))
        process = self._stack.enter_context(
            subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--no-dashboard"],
                cwd=self.folder,
                env={"PATH": "/usr/bin:/bin", "ETPROF_LOCKS": str(self.folder / locks)},
                stdout=log,
                stderr=log,
            )
        )
        self._stack.callback(process.kill)
        return process

    def add_worker(self, name: str, devices: tuple[str, ...]) -> None:
        """Starts a worker with more threads than devices: only resources hold it back."""
        resources = " ".join(f"{device}=1" for device in devices)
        self.workers[name] = self._start(
            "worker", self.address, "--nthreads", 4, "--no-nanny",
            "--resources", resources, "--name", name, locks=name,
        )  # fmt: skip

    @contextmanager
    def further_worker(self, name: str, devices: tuple[str, ...]) -> Iterator[None]:
        """Has one worker more for a while."""
        self.add_worker(name, devices)
        try:
            yield
        finally:
            worker = self.workers.pop(name)
            worker.kill()
            worker.wait()

    def _await(self, is_there: object) -> None:
        assert callable(is_there)
        deadline = time.monotonic() + STARTING_S
        while not is_there():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def bench(self, matrix: Path, *words: object) -> Completed:
        return run_command(
            [
                *(sys.executable, "-m", "etprof", "bench", matrix),
                *("--scheduler", self.address.removeprefix("tcp://"), *map(str, words)),
            ],
            folder=self.folder,
            timeout_s=600,
            environment={"ETPROF_LOCKS": str(self.folder / "client")},
        )


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with ExitStack() as stack:
        pool = Pool(tmp_path_factory.mktemp("pool"), stack)
        for name, devices in WORKERS.items():
            pool.add_worker(name, devices)
        yield pool


def write_matrix(folder: Path, devices: tuple[str, ...]) -> Path:
    path = folder / "matrix.json"
    document = {
        "name": "pool",
        "models": ["toy_cnn"],
        "precisions": ["fp32", "int8"],
        "devices": [{"name": device} for device in devices],
        "threads": [1, 2],
        "measurement": MEASUREMENT,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def finished(pool: Pool) -> Pool:
    completed = pool.bench(write_matrix(pool.folder, DEVICES))
    assert completed.exit_code == 0, completed.stderr
    return pool


def rows(pool: Pool) -> list[dict[str, Any]]:
    document = json.loads((pool.folder / "out_bench/pool/summary.json").read_text())
    found: list[dict[str, Any]] = document["rows"]
    return found


def launches(pool: Pool, device: str) -> list[tuple[str, float, float]]:
    """Run, start and end of every launch on a device, in order of their starts."""
    found = []
    for run in (pool.folder / "out_bench/pool/runs" / device).iterdir():
        manifest = load_manifest(run)
        assert manifest is not None
        for launch in manifest.launches:
            assert launch.started_at is not None
            assert launch.duration_s is not None
            start = datetime.fromisoformat(launch.started_at).timestamp()
            found.append((run.name, start, start + launch.duration_s))
    return sorted(found, key=lambda launch: launch[1])


def test_both_workers_worked_and_each_with_its_own_devices(finished: Pool) -> None:
    served = {(row["device"], row["worker"]) for row in rows(finished)}
    by_device = dict(served)
    assert len(served) == len(DEVICES)
    assert by_device["green"] == by_device["blue"] != by_device["red"]
    pids = {worker.pid for worker in finished.workers.values()}
    assert {int(worker.rpartition(":")[2]) for worker in by_device.values()} == pids


@pytest.mark.parametrize("device", DEVICES)
def test_no_device_ran_two_runs_at_once(finished: Pool, device: str) -> None:
    order = launches(finished, device)
    outputs, blocks, operators = 1, 6, 6
    assert len(order) == 2 * 2 * (outputs + blocks + operators)
    names = [name for name, *_ in order]
    assert names == sorted(names) or names == sorted(names, reverse=True)
    # Starts are known to a millisecond.
    assert all(end <= start + 1e-3 for (_, _, end), (_, start, _) in itertools.pairwise(order))


def test_runs_come_back_whole_and_into_the_history(finished: Pool) -> None:
    run = finished.folder / "out_bench/pool/runs/green/toy_cnn_xnnpack_int8"
    assert (run / "report.html").is_file()
    completed = run_command([sys.executable, "-m", "etprof", "validate", run])
    assert completed.exit_code == 0, completed.stdout
    assert {(row["status"], row["device"]) for row in rows(finished)} == {
        ("ok", device) for device in DEVICES
    }


def test_nothing_finished_is_sent_again(finished: Pool) -> None:
    completed = finished.bench(write_matrix(finished.folder, DEVICES), "--resume")
    assert completed.exit_code == 0, completed.stderr
    assert completed.stderr.count("finished earlier") == 6
    assert "0 runs are with the scheduler" in completed.stderr


WITHOUT_DEVICE = """
import json, sys
from pathlib import Path
from etprof.bench.cluster import run_on_cluster
from etprof.bench.combinations import expand
from etprof.bench.matrix import load_matrix
from etprof.bench.pool import Task
from etprof.cli.bench import BenchReporter

units, _ = expand(load_matrix(Path(sys.argv[1])))
tasks = [Task(unit, Path(sys.argv[2]), Path("lost", unit.label)) for unit in units]
outcomes = run_on_cluster(tasks, sys.argv[3], BenchReporter(2), patience_s=0.5)
print(json.dumps([outcome.errors for outcome in outcomes]))
"""


def test_a_device_that_nobody_offers_fails_and_hangs_nothing(finished: Pool) -> None:
    program = finished.folder / "out_bench/pool/programs/toy_cnn_xnnpack_fp32.pte"
    matrix = write_matrix(finished.folder, ("nobody",))
    completed = run_command(
        [sys.executable, "-c", WITHOUT_DEVICE, matrix, program, finished.address],
        folder=finished.folder,
        timeout_s=120,
    )
    assert completed.exit_code == 0, completed.stderr
    reason = (
        "no worker has offered the device 'nobody' for 0.5 s; start one with --resources 'nobody=1'"
    )
    assert json.loads(completed.stdout) == [[reason], [reason]]
    lost = load_manifest(finished.folder / "lost/toy_cnn_xnnpack_fp32")
    assert lost is not None
    assert lost.status == "failed"


def test_a_device_that_two_workers_offer_is_refused(finished: Pool, tmp_path: Path) -> None:
    # Another test may come after this one: what it adds goes, and its results are its own.
    results = shutil.copytree(finished.folder / "out_bench/pool", tmp_path / "results")
    matrix = write_matrix(tmp_path, ("red",))
    deadline = time.monotonic() + STARTING_S
    with finished.further_worker("three", ("red",)):
        while True:
            completed = finished.bench(matrix, "--resume", "--out", results)
            if completed.exit_code == 2 or time.monotonic() > deadline:
                break
    assert completed.stderr.splitlines()[-1] == (
        "etprof: the workers offer 'red' 2 times, but a device runs one thing at a time: give it "
        "to one worker, once (--resources 'red=1')"
    )


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path, ("red",))
    completed = run_command(
        [sys.executable, "-m", "etprof", "bench", matrix, "--scheduler", "127.0.0.1:1"],
        folder=tmp_path,
        environment={"ETPROF_LOCKS": str(tmp_path / "locks")},
    )
    assert completed.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in completed.stderr
