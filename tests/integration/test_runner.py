"""The installed etprof-runner: its result as the package reads it, and its end under pressure.

What it computes and how it fails on bad input is tested natively, in tests/cpp/runner.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etprof.base.errors import InputFileError
from etprof.base.process import Completed, run_command
from etprof.etdump.reader import load_etdump
from etprof.targets.local import LocalTarget
from etprof.targets.request import RunnerRequest, raw_inputs
from etprof.targets.runner import find_host_runner, read_cpu

MAKE_PROGRAMS = Path(__file__).parents[1] / "cpp/runner/make_programs.py"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    made = run_command([sys.executable, MAKE_PROGRAMS, folder])
    assert made.exit_code == 0, made.stderr
    return folder


def run(*flags: str | Path, before: tuple[str, ...] = ()) -> Completed:
    return run_command([*before, find_host_runner(), *flags], timeout_s=120)


def run_limited(limit: str, *flags: str | Path) -> Completed:
    """Runs under a limit of the shell's ulimit, such as "-f 8"."""
    script = f'ulimit {limit}; exec "$0" "$@"'
    return run(*flags, before=("sh", "-c", script))


def measure(program: Path, folder: Path, *flags: str | Path) -> dict[str, Any]:
    done = run("--model", program, "--result", folder / "r.json", *flags)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    result: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return result


def test_the_result_has_every_field_of_the_contract(programs: Path, tmp_path: Path) -> None:
    result = measure(programs / "convolutions_fp32.pte", tmp_path, "--threads", "1")
    kinds: dict[str, type] = {
        "schema_version": int,
        "data_path": type(None),
        "method": str,
        "pass": str,
        "seed": int,
        "first_inference_ns": int,
        "warmup_latency_ns": list,
        "latency_ns": list,
        "iterations": int,
    }
    for field, kind in kinds.items():
        assert isinstance(result[field], kind), field
    assert set(result["runner"]) == {"version", "build"}
    assert set(result["model"]) >= {"path", "size_bytes"}
    assert set(result["cpu"]) == {"architecture", "logical_cores", "cpuinfo"}
    assert result["threads"] == {"requested": 1, "in_force": 1}
    assert set(result["load"]) >= {"program_ns", "method_ns"}
    assert set(result["memory"]) == {
        "rss_before_load_bytes",
        "rss_after_load_bytes",
        "peak_rss_bytes",
        "pss_bytes",
        "planned_buffers_bytes",
    }
    (given,) = result["inputs"]
    assert given | {"size_bytes": 3072, "source": "seeded", "path": None} == given
    (output,) = result["outputs"]
    assert output == {
        "index": 0,
        "dtype": "float32",
        "shape": [1, 10],
        "size_bytes": 40,
        "path": None,
        "nonfinite_count": 0,
    }


def test_inputs_saved_by_numpy_are_taken(programs: Path, tmp_path: Path) -> None:
    """C8: NumPy's files are Python's to read; the runner takes raw values."""
    # GIVEN a program that gives back twice what it takes, of every dtype
    dtypes = ["u1", "i1", "i2", "i4", "i8", "f2", None, "f8", "?"]
    inputs = []
    for index, dtype in enumerate(dtypes):
        raw = programs / f"dtypes_input_{index}.bin"
        inputs.append(raw if dtype is None else tmp_path / f"{index}.npy")
        if dtype is not None:
            np.save(inputs[index], np.frombuffer(raw.read_bytes(), dtype))
    request = RunnerRequest(
        model=programs / "dtypes.pte",
        result=tmp_path / "r.json",
        inputs=tuple(inputs),
        outputs=tmp_path / "o",
        iterations=1,
    )
    # WHEN
    with raw_inputs(request) as given:
        LocalTarget().run(given)
    # THEN
    for index in range(len(dtypes)):
        expected = programs / f"dtypes_expected_{index}.bin"
        assert (tmp_path / f"o/output_{index}.bin").read_bytes() == expected.read_bytes()


def test_an_input_of_another_type_is_refused(programs: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.zeros((1, 8), "<i4"))
    request = RunnerRequest(
        model=programs / "mlp.pte", result=tmp_path / "r.json", inputs=(tmp_path / "i.npy",)
    )
    with (
        raw_inputs(request) as given,
        pytest.raises(InputFileError, match="takes float32 1x8, not int32 1x8"),
    ):
        LocalTarget().run(given)


def test_the_build_is_the_one_that_is_installed() -> None:
    built = json.loads(run("--build-info").stdout)
    assert built["version"] == version("etprof")
    assert built["build"]["executorch_version"] == version("executorch")
    assert re.fullmatch("[0-9a-f]{40}", built["build"]["executorch_revision"])


def test_the_runner_needs_no_environment(programs: Path, tmp_path: Path) -> None:
    flags = ("--model", programs / "mlp.pte", "--result", tmp_path / "r.json")
    assert run(*flags, before=("env", "-i")).exit_code == 0


def test_each_phase_has_event_blocks_of_its_name(programs: Path, tmp_path: Path) -> None:
    # GIVEN a run with its first inference, two of warm-up and three that count
    flags = ("--etdump", tmp_path / "x.etdump", "--warmup", "2", "--iterations", "3")
    measure(programs / "convolutions_fp32.pte", tmp_path, *flags)
    # WHEN
    dump = load_etdump(tmp_path / "x.etdump")
    # THEN
    blocks = [dump.names[name_id] for name_id in dump.blocks.name_id]
    assert blocks == ["Default", "First", "Warmup", "Warmup", "Execute", "Execute", "Execute"]


def test_the_etdump_never_claims_more_time_than_was_measured(
    programs: Path, tmp_path: Path
) -> None:
    flags = ("--etdump", tmp_path / "x.etdump", "--warmup", "0", "--iterations", "50")
    result = measure(programs / "convolutions_fp32.pte", tmp_path, *flags)
    dump = load_etdump(tmp_path / "x.etdump")
    execute = dump.names.index("Method::execute")
    rows = np.flatnonzero(np.asarray(dump.profile.name_id) == execute)
    spans_ns = (dump.profile.end_time - dump.profile.start_time)[rows].tolist()
    measured_ns = [result["first_inference_ns"], *result["latency_ns"]]
    assert len(spans_ns) == len(measured_ns)
    assert all(0 < inner <= outer for inner, outer in zip(spans_ns, measured_ns, strict=True))


def test_a_file_that_outgrows_its_limit_leaves_nothing(programs: Path, tmp_path: Path) -> None:
    # GIVEN that no file may pass 16 KiB, and an ETDump of more
    paths = ("--result", tmp_path / "r.json", "--etdump", tmp_path / "x.etdump")
    # WHEN
    done = run_limited(
        "-f 32",
        "--model",
        programs / "mlp.pte",
        *paths,
        "--outputs",
        tmp_path / "o",
        "--iterations=500",
    )
    # THEN
    assert done.exit_code == 7
    assert done.stderr == (
        f"etprof-runner: cannot write {tmp_path}/x.etdump (File too large): "
        "free some space or choose another disk\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_etdump_that_memory_cannot_hold_is_refused(programs: Path, tmp_path: Path) -> None:
    paths = ("--result", tmp_path / "r.json", "--etdump", tmp_path / "x.etdump")
    flags = ("--model", programs / "mlp.pte", *paths, "--threads=1", "--iterations=1000000")
    done = run_limited("-v 150000", *flags)
    assert (done.exit_code, done.stderr) == (
        7,
        "etprof-runner: there is no room for a larger ETDump: run fewer iterations with --etdump\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_memory_that_does_not_suffice_is_an_error(programs: Path, tmp_path: Path) -> None:
    flags = ("--model", programs / "mlp.pte", "--result", tmp_path / "r.json")
    done = run_limited("-v 200000", *flags, "--threads=1", "--iterations=1000000000")
    assert (done.exit_code, done.stderr) == (
        70,
        "etprof-runner: out of memory: run a smaller model, or fewer iterations\n",
    )


def test_a_run_that_is_killed_leaves_nothing(programs: Path, tmp_path: Path) -> None:
    paths = ("--result", tmp_path / "r.json", "--etdump", tmp_path / "x.etdump")
    flags = ("--model", programs / "convolutions_fp32.pte", *paths, "--min-seconds=60")
    done = run(*flags, before=("timeout", "--signal=KILL", "0.5"))
    assert done.exit_code in (137, -9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_run_that_is_ended_while_it_writes_leaves_nothing(
    name: str, programs: Path, tmp_path: Path
) -> None:
    # GIVEN a run that has written its outputs, and waits for a reader of its result
    os.mkfifo(tmp_path / "result")
    outputs = tmp_path / "outputs"
    flags = ("--model", programs / "mlp.pte", "--result", tmp_path / "result")
    script = """
        "$0" "$@" & runner=$!
        until ls "$OUTPUTS"/*.tmp*; do kill -0 $runner || exit 99; done > /dev/null 2>&1
        kill -$NAME $runner; wait $runner"""
    before = ("env", f"OUTPUTS={outputs}", f"NAME={name}", "sh", "-c", script)
    # WHEN
    done = run(*flags, "--etdump", tmp_path / "x.etdump", "--outputs", outputs, before=before)
    # THEN it ends as the signal asks
    assert done.exit_code == 128 + getattr(signal, f"SIG{name}")
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_disk_that_fills_up_is_left_as_it_was(programs: Path, tmp_path: Path) -> None:
    # GIVEN a file system of 48 KiB with an older result, and an ETDump that does not fit
    script = """
        mount -t tmpfs -o size=48k small . || exit 99
        cd .; echo old > r.json
        "$0" "$@"; code=$?
        ls; cat r.json; exit $code"""
    disk = tmp_path / "disk"
    disk.mkdir()
    in_disk = (
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f"cd {shlex.quote(str(disk))}; {script}",
    )
    # Not even namespaces are to be had inside of a chroot.
    if run("--version", before=in_disk).exit_code != 0:
        pytest.skip("may not mount a file system")
    # WHEN
    flags = ("--model", programs / "mlp.pte", "--iterations=500", "--outputs", "o")
    done = run(*flags, "--etdump", "x.etdump", "--result", "r.json", before=in_disk)
    # THEN
    assert done.exit_code == 7
    assert done.stderr == (
        "etprof-runner: cannot write x.etdump (No space left on device): "
        "free some space or choose another disk\n"
    )
    assert done.stdout == "r.json\nold\n"


def test_threads_that_cannot_be_started_are_refused(programs: Path, tmp_path: Path) -> None:
    flags = ("--model", programs / "mlp.pte", "--result", tmp_path / "r.json", "--threads=1024")
    done = run_limited("-v 400000", *flags)
    assert done.exit_code == 2
    assert done.stderr == (
        "etprof-runner: 1024 threads cannot be started here: "
        "ask for fewer with --threads, or raise the limit of processes\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/cpuinfo")
def test_the_cpu_is_the_one_that_the_kernel_describes() -> None:
    """C8: the runner made names of the system's words, in a table of its own."""
    # GIVEN what the kernel says
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    told = {key.strip(): value for key, _, value in (line.partition(": ") for line in lines)}
    flags = (told.get("flags") or told["Features"]).split()
    # WHEN
    said = run("--cpu-info").stdout
    cpu = read_cpu(said)
    # THEN the runner says no less about model and features, and nothing else of the machine
    names = {"model name", "flags", "Features", "CPU implementer", "CPU part"}
    asked = {line.partition(":")[0].strip(): line for line in json.loads(said)["cpuinfo"]}
    assert {*asked} == names & {*told}
    assert cpu.logical_cores == os.cpu_count()
    assert cpu.model_name == told.get("model name", cpu.model_name)
    for name in ("avx2", "sse4_2", "asimddp", "sme2"):
        ours = {"sse4_2": "sse4.2", "asimddp": "dotprod"}.get(name, name)
        assert cpu.features.get(ours, False) == (name in flags)


def test_an_answer_that_cannot_be_printed_is_an_error(programs: Path) -> None:
    script = '"$0" "$@" > /dev/full'
    done = run("--describe", "--model", programs / "mlp.pte", before=("sh", "-c", script))
    assert done.exit_code == 7
    assert done.stderr == (
        "etprof-runner: cannot write to stdout (No space left on device): "
        "send it to a file on a disk with space, or a program that reads it\n"
    )


@pytest.mark.parametrize("name", ["convolutions_fp32", "mlp", "mixed"])
def test_a_damaged_program_ends_in_one_line_at_most(
    name: str, programs: Path, tmp_path: Path
) -> None:
    # GIVEN a program with one byte changed
    original = (programs / f"{name}.pte").read_bytes()
    damaged = tmp_path / "damaged.pte"
    chance = random.Random(name)  # noqa: S311
    for _ in range(150):
        content = bytearray(original)
        content[chance.randrange(len(content))] = chance.choice([0, 1, 127, 128, 255])
        damaged.write_bytes(content)
        # WHEN
        done = run("--model", damaged, "--result", tmp_path / "r.json", "--iterations=2")
        # THEN it runs, or it fails with one line and without a result, even if ExecuTorch crashed
        failed = done.exit_code != 0
        assert done.exit_code in (0, 3, 4, 5, 6, 70, -6, -7, -8, -11), done
        assert done.stderr.count("\n") == failed
        assert (tmp_path / "r.json").exists() != failed
        (tmp_path / "r.json").unlink(missing_ok=True)
