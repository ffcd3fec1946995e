"""Devices side by side, each alone; a failure is kept and stops nothing; what is done stays done."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import resource
import signal
import sys
import tarfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import InputFileError, TargetError, UsageError
from etprof.base.interruption import Interrupted, interruptible
from etprof.base.process import run_command
from etprof.bench import cluster
from etprof.bench.archives import pack_program, pack_run, unpack_program, unpack_run
from etprof.bench.combinations import expand
from etprof.bench.execution import unfinished_reason
from etprof.bench.matrix import parse_matrix
from etprof.bench.pool import Task, run_here
from etprof.history.ingest import read_run_directory
from etprof.run.manifest import Manifest, load_manifest
from etprof.targets.device_lock import FOLDER_VARIABLE, MeasuredDevice, this_host
from tests.device_holder import held
from tests.first_edition import downgrade, hashes, make_old
from tests.process_tree import ProcessTree, wait_for
from tests.world.results import GeneratingTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.bench.execution import UnitOutcome
    from etprof.config import Config
    from etprof.run.runner_result import RunnerResult
    from etprof.targets.request import RunnerRequest

MEASUREMENT = {"blocks": 2, "min_seconds": 0.01, "etdump_runs": 1, "operator_launches": 1}


class Silent:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def say(self, text: str) -> None:
        self.told.append(text)

    def step(self, *what: object) -> None:
        self.told.append(what)

    def finished(self, outcome: UnitOutcome) -> None:
        self.told.append(outcome)


def phone(serial: str) -> MeasuredDevice:
    return MeasuredDevice(f"android_{serial}", f"device {serial}")


class Device(GeneratingTarget):
    """Knows who is on it; with a barrier, its first launch waits until all devices have one."""

    def __init__(self, serial: str, users: Counter[str], barrier: threading.Barrier | None) -> None:
        super().__init__()
        self.platform = "android"
        self.serial, self.users, self.barrier = serial, users, barrier
        self.broken = False
        self.build_of_android = "one"
        self.lockable: MeasuredDevice = phone(serial)

    def describe(self) -> dict[str, object]:
        return {"system": "Fake", "serial": self.serial, "android_build": self.build_of_android}

    def device(self) -> MeasuredDevice:
        return self.lockable

    def run(self, request: RunnerRequest) -> RunnerResult:
        if self.broken:
            msg = "the device is on fire; put it out"
            raise TargetError(msg)
        self.users[self.serial] += 1
        try:
            time.sleep(0.01)  # long enough for another to come, were there one
            assert self.users[self.serial] == 1
            if self.barrier is not None:
                self.barrier.wait(60)
                self.barrier = None
            return super().run(request)
        finally:
            self.users[self.serial] -= 1


class Bench:
    """A matrix of fake devices in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(FOLDER_VARIABLE, str(folder / "locks"))
        monkeypatch.setattr("etprof.bench.execution.configured_target", self._make_target)
        self.folder = folder
        self.program = folder / "m.pte"
        self.program.write_bytes(b"program")
        exported = {"model": "toy_cnn", "backend": "xnnpack", "precision": "fp32"}
        methods = {"method": "prefill", "methods": {"prefill": {}, "decode": {}}}
        (folder / "m.pte.json").write_text(json.dumps({**exported, **methods}))
        self.users: Counter[str] = Counter()
        self.devices: dict[str, Device] = {}

    def add_device(self, serial: str, barrier: threading.Barrier | None = None) -> Device:
        self.devices[serial] = Device(serial, self.users, barrier)
        return self.devices[serial]

    def _make_target(self, config: Config) -> Device:
        return self.devices[config.target.serial or config.target.kind]

    def tasks(self, **changes: object) -> list[Task]:
        document = {"models": ["toy_cnn"], "measurement": MEASUREMENT, **changes}
        units, _ = expand(parse_matrix(json.dumps(document), "m"))
        return [Task(unit, self.program, unit.run_directory(self.folder)) for unit in units]

    def run(self, tasks: list[Task], *, resume: bool = False) -> list[UnitOutcome]:
        return list(run_here(tasks, Silent(), resume=resume))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def phones(*serials: str) -> list[dict[str, str]]:
    return [{"name": f"phone{s}", "kind": "android", "serial": s} for s in serials]


def manifest_of(task: Task) -> Manifest:
    manifest = load_manifest(task.run)
    assert manifest is not None
    return manifest


class SleepingDevice(Device):
    """Its launch outlasts every test."""

    def run(self, request: RunnerRequest) -> RunnerResult:
        run_command(["sleep", "600"], environment=self.tree.environment)
        return super().run(request)

    def __init__(self, tree: ProcessTree) -> None:
        super().__init__("asleep", Counter(), None)
        self.tree = tree


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_who_stops_a_matrix_does_not_wait_for_its_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: the thread of a device waited for its launch, for up to an hour."""
    tree, bench = ProcessTree(), Bench(tmp_path, monkeypatch)
    bench.devices["android"] = SleepingDevice(tree)
    (task,) = bench.tasks(devices=[{"name": "phone", "kind": "android"}])
    outcomes = run_here([task], Silent(), resume=False)

    def stop() -> None:
        wait_for(lambda: tree.running("sleep 600"), "nothing was launched")
        os.kill(os.getpid(), signal.SIGTERM)

    killer = threading.Thread(target=stop)
    killer.start()
    with pytest.raises(Interrupted), interruptible(), contextlib.closing(outcomes):
        next(outcomes)
    killer.join()
    assert tree.living() == {}
    # AND the run can be resumed: no launch of it counts as failed
    manifest = load_manifest(task.run)
    assert manifest is not None
    assert (manifest.status, manifest.launches) == ("running", ())


@pytest.mark.slow
def test_devices_work_side_by_side_and_each_alone(bench: Bench) -> None:
    barrier = threading.Barrier(3)
    for serial in "abc":
        bench.add_device(serial, barrier)
    tasks = bench.tasks(devices=phones(*"abc"), precisions=["fp32", "fp16", "int8"])
    outcomes = bench.run(tasks)
    assert {outcome.unit.text for outcome in outcomes} == {task.unit.text for task in tasks}
    assert [outcome.errors for outcome in outcomes] == [()] * 9
    assert {manifest_of(task).status for task in tasks} == {"finished"}


def test_one_phone_by_two_names_is_still_one_device(bench: Bench) -> None:
    bench.devices = dict.fromkeys("ab", bench.add_device("a"))
    tasks = bench.tasks(devices=phones("a", "b"), precisions=["fp32", "fp16"])
    # Not to wait is meant for other commands, not for the threads of this one.
    outcomes = list(run_here(tasks, Silent(), resume=False, wait=False))
    assert [outcome.errors for outcome in outcomes] == [()] * 4


def test_a_device_in_use_elsewhere_is_a_failed_run_for_who_does_not_wait(bench: Bench) -> None:
    bench.add_device("a")
    bench.add_device("b")
    tasks = bench.tasks(devices=phones("a", "b"))
    with held(phone("a")):
        found = {o.unit.device.name: o for o in run_here(tasks, Silent(), resume=False, wait=False)}
    assert found["phoneb"].errors == ()
    (error,) = found["phonea"].errors
    assert error.startswith("device a is in use by etprof bench (process ")
    assert manifest_of(tasks[0]).status == "failed"


def test_a_device_in_use_elsewhere_is_waited_for_with_a_line(bench: Bench) -> None:
    bench.add_device("a")
    with held(phone("a")) as holder:

        class Watching(Silent):
            def say(self, text: str) -> None:
                super().say(text)
                holder.kill()

        reporter = Watching()
        (outcome,) = run_here(bench.tasks(devices=phones("a")), reporter, resume=False)
    assert outcome.errors == ()
    (line,) = [each for each in reporter.told if isinstance(each, str)]
    assert line.startswith("Waiting for device a, in use by etprof bench (process ")


def test_emulator_and_host_share_a_cpu(bench: Bench) -> None:
    cpu = bench.add_device("cpu")
    bench.devices = {"local": cpu, "emulator": cpu}
    devices = [{"name": kind, "kind": kind} for kind in bench.devices]
    outcomes = bench.run(bench.tasks(devices=devices, precisions=["fp32", "fp16"]))
    assert [outcome.errors for outcome in outcomes] == [()] * 4


def test_what_is_emulated_waits_for_the_host_that_it_loads(bench: Bench) -> None:
    bench.add_device("emulator").lockable = this_host()
    tasks = bench.tasks(devices=[{"name": "emulator", "kind": "emulator"}])
    with held(this_host()):
        (outcome,) = run_here(tasks, Silent(), resume=False, wait=False)
    assert outcome.errors[0].startswith("this host is in use by etprof bench (process ")


def test_a_failure_is_kept_and_the_others_go_on(bench: Bench) -> None:
    bench.add_device("a").broken = True
    bench.add_device("b")
    tasks = bench.tasks(devices=phones("a", "b"), threads=[1, 2], sme=["sme2", "off"])
    outcomes = {outcome.unit.device.name: outcome for outcome in bench.run(tasks)}
    assert outcomes["phonea"].errors == ("the device is on fire; put it out",)
    assert outcomes["phoneb"].errors == ()
    runs = read_run_directory(tasks[0].run, device="phonea")
    assert [(r.experiment, r.sme_mode, r.threads, r.status) for r in runs] == [
        (f"android_{mode}_t{threads}", mode, threads, "failed")
        for mode in ("sme2", "off")
        for threads in (1, 2)
    ]
    assert {r.failure for r in runs} == {"timing: the device is on fire; put it out"}
    assert runs[0].model == "toy_cnn"


def test_a_failure_belongs_to_the_series_of_the_runs_that_worked(bench: Bench) -> None:
    phone = bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"), sme=["off"])
    series = set()
    for broken in (False, True):
        phone.broken = broken
        bench.run([task])
        (run,) = read_run_directory(task.run, device="phonea")
        series.add((run.series, run.status))
    assert len(series) == 2
    assert len({name for name, _ in series}) == 1


def test_a_generation_has_its_metrics_and_its_failure_stays_in_its_series(bench: Bench) -> None:
    phone = bench.add_device("a")
    entry = {"model": "toy_cnn", "generation": {"new_tokens": 4, "prompt_tokens": [7, 8, 9]}}
    found = []
    for broken in (False, True):
        phone.broken = broken
        (task,) = bench.tasks(models=[entry], devices=phones("a"), sme=["off"])
        bench.run([task])
        (run,) = read_run_directory(task.run, device="phonea")
        found.append((run.series, run.method, run.status))
        if not broken:
            metrics = {metric.name: metric.value for metric in run.metrics}
    asked = [(r.generation.new_tokens, r.method) for r in phone.requests if r.generation]
    assert asked == [(4, "decode")] * 3
    assert metrics["decode_tokens_per_second"] == 375
    assert metrics["time_to_first_token_ns"] == 8e6
    assert [each[1:] for each in found] == [("decode", "ok"), ("decode", "failed")]
    assert found[0][0] == found[1][0]


def test_even_a_defect_of_ours_loses_no_other_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add_device("a")
    tasks = bench.tasks(devices=phones("a"), precisions=["fp32", "fp16"])
    monkeypatch.setattr(bench.devices["a"], "read_state", iter([ZeroDivisionError("x")]).__next__)
    outcomes = bench.run(tasks)
    assert [len(outcome.errors) for outcome in outcomes] == [1, 1]
    assert all(manifest_of(task).status == "failed" for task in tasks)


def test_what_is_finished_is_recognised_and_nothing_else(bench: Bench) -> None:
    bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"), sme=["off"])
    assert unfinished_reason(task.unit, task.program, task.run)
    bench.run([task])
    assert unfinished_reason(task.unit, task.program, task.run) is None
    (other,) = bench.tasks(devices=phones("a"), sme=["off"], threads=[4])
    assert unfinished_reason(other.unit, task.program, task.run)
    task.program.write_bytes(b"another program")
    assert unfinished_reason(task.unit, task.program, task.run)


def test_a_finished_run_is_known_by_its_files(bench: Bench) -> None:
    """A-D10: a run was finished when its manifest said so, whatever had become of its files."""
    phone = bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"), sme=["off"])
    bench.run([task])
    done = len(phone.requests)
    changed = next(iter(sorted(task.run.glob("*/*_b01_result.json"))))
    changed.write_text("{}")
    why = unfinished_reason(task.unit, task.program, task.run)
    assert why is not None
    assert changed.name in why
    bench.run([task], resume=True)
    # THEN only that launch is repeated
    assert [request.result for request in phone.requests[done:]] == [changed]
    assert unfinished_reason(task.unit, task.program, task.run) is None


def test_a_run_of_the_old_edition_is_taken_up(bench: Bench) -> None:
    """`bench --resume` measured all units of the old edition again: its words were others."""
    bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"), sme=["off"])
    bench.run([task])
    downgrade(task.run)
    make_old(task.run)
    document = json.loads((task.run / "manifest.json").read_text())
    document["files"] = {name: hashes(task.run)[name] for name in document["files"]}
    for launch in document["launches"]:
        launch["purpose"] = {"operators": "etdump"}.get(launch["purpose"], launch["purpose"])
    unit = document["config"]["unit"]
    for part, old in (
        ("device", {"runner": "runner_path", "cpus": "cpu_affinity"}),
        ("measurement", {"iterations": "runs", "operator_iterations": "etdump_runs"}),
    ):
        unit[part] = {old.get(name, name): value for name, value in unit[part].items()}
    for part, new in (("device", ("trace_runner", "trace_preset")), ("measurement", ("kernels",))):
        for name in new:
            del unit[part][name]
    (task.run / "manifest.json").write_text(json.dumps(document))
    assert unfinished_reason(task.unit, task.program, task.run) is None
    # AND a unit that is not the same is named by what differs
    unit["measurement"]["blocks"] = 99
    (task.run / "manifest.json").write_text(json.dumps(document))
    why = unfinished_reason(task.unit, task.program, task.run)
    assert why is not None
    assert why.endswith("of another measurement")


def test_a_run_that_cannot_be_continued_is_measured_anew_and_says_why(bench: Bench) -> None:
    """A-D10: a phone with another system version in the middle of a matrix was a failed run."""
    phone = bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"), sme=["off"])
    bench.run([task])
    next(iter(task.run.glob("*/*.etdump"))).unlink()
    phone.build_of_android = "another"
    reporter = Silent()
    (outcome,) = run_here([task], reporter, resume=True)
    assert outcome.errors == ()
    assert any("android_build" in str(line) for line in reporter.told)
    assert unfinished_reason(task.unit, task.program, task.run) is None


def test_a_preset_is_resolved_before_the_device_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-D10: a device with a preset was measured in `auto` only, for nobody asked its runner."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.chdir(tmp_path)
    runner = tmp_path / "build" / "own" / "cpp" / "runner" / "etprof-runner"
    runner.parent.mkdir(parents=True)
    runner.write_bytes(b"runner")
    (tmp_path / "m.pte").write_bytes(b"program")
    device = Device("a", Counter(), None)
    made: list[dict[str, object]] = []

    def make(**how: object) -> Device:
        made.append(how)
        return device

    monkeypatch.setattr("etprof.targets.android.target.AndroidTarget", make)
    entry = {"name": "phone", "kind": "android", "serial": "a", "preset": "own"}
    document = {"models": ["toy_cnn"], "measurement": MEASUREMENT, "devices": [entry]}
    (unit,), _ = expand(parse_matrix(json.dumps(document), "m"))
    task = Task(unit, tmp_path / "m.pte", tmp_path / "run")
    (outcome,) = run_here([task], Silent(), resume=False)
    assert outcome.errors == ()
    assert made[0]["runner"] == runner
    assert {request.runner for request in device.requests} == {runner}


def test_settings_that_a_device_does_not_take_are_told(bench: Bench) -> None:
    """A-D10, I8: on what is emulated, they vanished without a word."""
    bench.add_device("emulator").platform = "emulator"
    tasks = bench.tasks(
        devices=[{"name": "emulator", "kind": "emulator"}], measurement={**MEASUREMENT, "runs": 9}
    )
    (outcome,) = bench.run(tasks)
    assert [note.partition(":")[0] for note in outcome.notes] == [
        "blocks, iterations, min_seconds, operator_launches"
    ]


@pytest.mark.parametrize(("keep_going", "launches"), [(False, 2), (True, 7)])
def test_an_experiment_may_be_kept_going(bench: Bench, launches: int, *, keep_going: bool) -> None:
    """A-D10: `run` has --keep-going; `bench` gave up always."""
    phone = bench.add_device("a")
    phone.spec = plain(0, 1, methods=None)
    tasks = bench.tasks(
        devices=phones("a"), sme=["off"], measurement={"blocks": 6, "operator_launches": 1}
    )
    list(run_here(tasks, Silent(), resume=False, keep_going=keep_going))
    assert len(phone.requests) == launches


def test_a_stopped_matrix_goes_on_where_it_was(bench: Bench) -> None:
    phone = bench.add_device("a")
    first, second = bench.tasks(devices=phones("a"), sme=["off"], precisions=["fp32", "fp16"])
    with contextlib.closing(run_here([first, second], Silent(), resume=False)) as outcomes:
        next(outcomes)
    # Closing waited for the device; the second run may have begun, but was not finished.
    assert manifest_of(first).status == "finished"
    done = len(phone.requests)
    assert done < 6
    (outcome,) = bench.run([second], resume=True)
    assert outcome.errors == ()
    assert len(phone.requests) == 6
    assert manifest_of(second).status == "finished"


def test_without_resume_an_earlier_run_is_set_aside(bench: Bench) -> None:
    bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"))
    for _ in range(2):
        bench.run([task])
    assert len(list(task.run.parent.iterdir())) == 2


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc"
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("/outside")],
        [member("run/../../outside")],
        [member("run", tarfile.SYMTYPE), member("run/outside")],
        [member("run", tarfile.LNKTYPE), member("run/outside")],
        [member("run/pipe", tarfile.FIFOTYPE)],
        [member("run/twice"), member("run/twice")],
    ],
    ids=lambda members: f"{members[0].name} {members[0].type.decode()}",
)
def test_an_archive_writes_files_and_folders_inside_its_folder_alone(
    members: list[tarfile.TarInfo], tmp_path: Path
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(b""))
    with contextlib.suppress(InputFileError):
        unpack_program(stream.getvalue(), tmp_path / "a/there")
    found = list(tmp_path.rglob("*"))
    assert [path for path in found if path.is_symlink() or path.is_fifo()] == []
    assert {path.relative_to(tmp_path).parts[:2] for path in found if path.is_file()} <= {
        ("a", "there")
    }


def archived(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.addfile(member(name, size=len(content)), io.BytesIO(content))
    return stream.getvalue()


def with_wrong_checksum() -> bytes:
    """Returns an archive that is read to its end, as it has no mark of one."""
    data = bytearray(gzip.compress(gzip.decompress(archived("run/x", b"1234"))[:1024]))
    data[-8] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "archive",
    [
        archived("run/" + "n" * 300, b"1234"),
        archived("n" * 300 + "/x", b"1234"),
        archived("run/x", bytes(200_000)),
        with_wrong_checksum(),
    ],
    ids=["long name", "long folder", "longer than a file may be", "wrong checksum"],
)
def test_what_no_disk_takes_is_a_damaged_archive(archive: bytes, tmp_path: Path) -> None:
    """S10: these were OSErrors of the system, without a file that the user knows."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(InputFileError, match="archive from another host is damaged"):
            unpack_program(archive, tmp_path / "there")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_archives_carry_a_program_and_a_run(bench: Bench, tmp_path: Path) -> None:
    bench.add_device("a")
    (task,) = bench.tasks(devices=phones("a"))
    bench.run([task])
    (bench.folder / "m.pte.data").mkdir()
    (bench.folder / "m.pte.data" / "input_0.bin").write_bytes(b"1234")
    unpack_program(pack_program(task.program), tmp_path / "there")
    assert (tmp_path / "there/m.pte").read_bytes() == b"program"
    assert (tmp_path / "there/m.pte.data/input_0.bin").read_bytes() == b"1234"
    unpack_run(pack_run(task.run), tmp_path / "back/run", tmp_path / "there/m.pte")
    manifest = load_manifest(tmp_path / "back/run")
    assert manifest is not None
    assert manifest.model.path == str(tmp_path / "there/m.pte")
    assert manifest.files == manifest_of(task).files
    # AND a second one goes beside it
    unpack_run(pack_run(task.run), tmp_path / "back/run", tmp_path / "there/m.pte")
    assert len(list((tmp_path / "back").iterdir())) == 2


def test_a_device_that_is_offered_twice_is_named() -> None:
    offers = {"tcp://a": {"phone": 1.0, "host": 1.0}, "tcp://b": {"phone": 1.0, "other": 0.5}}
    with pytest.raises(UsageError, match="the workers offer 'phone' 2 times"):
        cluster._check_offers(offers)
    cluster._check_offers({"tcp://a": {"phone": 1.0}, "tcp://b": {"other": 0.5}})
