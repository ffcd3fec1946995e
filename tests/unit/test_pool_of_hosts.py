"""A matrix on a Dask cluster whose one worker is a thread here, with simulated devices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import UsageError
from etprof.bench.cluster import check_scheduler, run_on_cluster
from etprof.run.validation import validate_run
from tests.unit.test_bench_pool import MEASUREMENT, Bench, Silent, manifest_of, phones
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    MakePool = Callable[..., str]

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install distributed")


@pytest.fixture(scope="module")
def make_pool() -> Iterator[MakePool]:
    """Starts schedulers with one worker that offers what it is told."""
    clusters = []

    def make(**offered: int) -> str:
        clusters.append(
            distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=2,
                processes=False,
                dashboard_address=":0",
                resources=offered,
            )
        )
        address: str = clusters[-1].scheduler_address
        return address

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.fixture(scope="module")
def address(make_pool: MakePool) -> str:
    return make_pool(phone1=1, phone2=1)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path, monkeypatch)
    for serial in ("1", "2"):
        bench.add_device(serial)
    return bench


def test_runs_come_back_from_a_worker_as_if_measured_here(bench: Bench, address: str) -> None:
    reporter = Silent()
    tasks = bench.tasks(
        devices=phones("1", "2"), precisions=["fp32", "int8"], sme=["off"], threads=[1]
    )
    outcomes = list(run_on_cluster(tasks, address, reporter))
    assert reporter.told == [f"4 runs are with the scheduler at {address}"]
    assert {outcome.unit: outcome.errors for outcome in outcomes} == {t.unit: () for t in tasks}
    for task in tasks:
        manifest = manifest_of(task)
        assert manifest.status == "finished"
        assert manifest.model.path == str(bench.program)
        assert manifest.target["serial"] == task.unit.device.serial
        damage = [finding for finding in validate_run(task.run) if finding.level == "damaged"]
        assert damage == []


def test_a_device_that_is_not_there_fails_alone(bench: Bench, address: str) -> None:
    tasks = bench.tasks(devices=phones("1", "3"), sme=["off"], threads=[1])
    outcomes = list(run_on_cluster(tasks, address, Silent(), patience_s=0))
    missing = (
        "no worker has offered the device 'phone3' for 0 s; start one with --resources 'phone3=1'"
    )
    assert {outcome.unit.device.name: outcome.errors for outcome in outcomes} == {
        "phone1": (),
        "phone3": (missing,),
    }
    assert [manifest_of(task).status for task in tasks] == ["finished", "failed"]


@pytest.mark.parametrize(("keep_going", "launches"), [(False, 2), (True, 7)])
def test_whoever_keeps_going_does_so_on_a_worker_too(
    bench: Bench, address: str, launches: int, *, keep_going: bool
) -> None:
    bench.devices["1"].spec = plain(0, 1, methods=None)
    blocks = {"blocks": 6, "operator_launches": 1}
    tasks = bench.tasks(devices=phones("1"), sme=["off"], measurement=blocks)
    list(run_on_cluster(tasks, address, Silent(), keep_going=keep_going))
    assert len(bench.devices["1"].requests) == launches


def test_what_a_worker_cannot_bring_back_is_a_failed_run(
    bench: Bench, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etprof.bench.remote.pack_run", lambda _: b"no archive")
    (task,) = bench.tasks(devices=phones("1"), sme=["off"], threads=[1])
    (outcome,) = run_on_cluster([task], address, Silent())
    (reason,) = outcome.errors
    assert reason.startswith("the worker failed: an archive from another host is damaged (")
    assert manifest_of(task).notes == (reason,)


def test_a_pool_is_asked_before_anything_is_exported(make_pool: MakePool, address: str) -> None:
    check_scheduler(address)
    doubled = make_pool(phone1=2)
    for refused in (check_scheduler, lambda where: next(run_on_cluster([], where, Silent()))):
        with pytest.raises(UsageError, match="the workers offer 'phone1' 2 times"):
            refused(doubled)


def test_a_matrix_is_measured_by_the_workers(make_pool: MakePool, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(b"m")
    document = {
        "models": [{"model": "m.pte"}],
        "devices": [{"name": "desk"}],
        "sme": ["off", "sme2"],
        "threads": [1],
        "measurement": MEASUREMENT,
    }
    (tmp_path / "matrix.json").write_text(json.dumps(document))
    address = make_pool(desk=1)
    with simulated_host(SimTarget):
        done = etprof(tmp_path, "bench", "matrix.json", "--scheduler", address, "--store", "h.db")
    assert done.exit_code == 0
    # THEN all of it came back, and the history has both modes
    lines = done.stdout.splitlines()
    assert lines[0] == "bench: 2 experiments, 0 failed; desk, m, unknown, unknown"
    assert [line.split()[0] for line in lines[1:4]] == ["SME", "off", "sme2"]
    assert f"1 run is with the scheduler at {address}" in done.stderr
    assert "[1/1] m unknown unknown on desk: " in done.stderr
    summary = json.loads((tmp_path / "out_bench/bench/summary.json").read_text("utf-8"))
    assert [(row["sme"], row["status"]) for row in summary["rows"]] == [
        ("off", "ok"),
        ("sme2", "ok"),
    ]
    assert (tmp_path / "out_bench/bench/runs/desk/m_pte/report.html").is_file()
    # WHEN the same is asked for again
    with simulated_host(SimTarget):
        again = etprof(
            tmp_path, "bench", "matrix.json", "--scheduler", address, "--store", "h.db", "--resume"
        )
    assert again.exit_code == 0
    assert f"0 runs are with the scheduler at {address}" in again.stderr
