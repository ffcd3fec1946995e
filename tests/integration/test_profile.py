"""`etprof profile` and `etprof analyze` as a user runs them: real model, real runner, real files."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from etprof.analysis.split.executions import examine_executions, keep_near_median
from etprof.analysis.split.operators import split_operators
from etprof.base.process import run_command
from etprof.etdump.plausibility import examine_events
from etprof.etdump.reader import load_etdump
from tests.integration.report_truth import raw_executions, raw_totals
from tests.known_etdumps import timed
from tests.recorded_etdumps import CHANGES, S, changed
from tests.world.host import Done, etprof


@dataclass(frozen=True)
class Profiled:
    """A folder in which toy_cnn was profiled, and what that printed."""

    folder: Path
    completed: Done

    @property
    def run(self) -> Path:
        return self.folder / "out_toy_cnn/runs/linux"

    @property
    def summary(self) -> dict[str, object]:
        document: dict[str, object] = json.loads((self.run / "analysis_summary.json").read_text())
        return document


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profile")
    words = ("--dtype", "fp32", "--threads", "1", "--blocks", "6", "--min-seconds", "0.05")
    of_one = ("--operator-launches", "1")  # so that one ETDump holds the whole split
    return Profiled(folder, etprof(folder, "profile", "toy_cnn", *words, *of_one, "--full"))


def test_profile_ends_with_a_report(profiled: Profiled) -> None:
    assert profiled.completed.exit_code == 0, profiled.completed.stderr
    for text in (
        "linux_auto: SME off, 1 thread, 100 inferences recorded",
        "Latency of timing launches",
        "First inference",
        "Convolution",
        "delegate overhead",
        "Method::execute",
        "100.0 %",
    ):
        assert text in profiled.completed.stdout
    assert "Traceback" not in profiled.completed.stderr


def test_the_run_directory_is_complete(profiled: Profiled) -> None:
    stem = "linux_auto/toy_cnn_xnnpack_fp32_linux_auto_t1"
    for name in (
        "manifest.json",
        "metrics.json",
        "analysis_summary.json",
        f"{stem}.etdump",
        f"{stem}.log",
        f"{stem}_result.json",
        f"{stem}_timeline.csv",
        f"{stem}_ops_stats.csv",
    ):
        assert (profiled.run / name).is_file(), name


def test_shares_close_on_the_execution(profiled: Profiled) -> None:
    experiment = profiled.summary["experiments"]["linux_auto"]  # type: ignore[index]
    entries = [*experiment["operators"], *experiment["overheads"]]
    assert sum(entry["share"] for entry in entries) == pytest.approx(1, abs=1e-9)
    total_ms = sum(experiment["category_means_ms"].values())
    assert total_ms * 1e6 == pytest.approx(experiment["execute_mean_ns"])
    assert experiment["unknown_names"] == []


def test_totals_agree_with_the_raw_etdump(profiled: Profiled) -> None:
    (path,) = profiled.run.glob("*/*.etdump")
    experiment = profiled.summary["experiments"]["linux_auto"]  # type: ignore[index]
    left_out = experiment["left_out"]
    assert (left_out["recorded"], left_out["impossible"]) == (100, 0)
    assert experiment["executions"] == 100 - left_out["disturbed"]
    _, whole = raw_totals(path, experiment["executions"])
    executions = experiment["executions"]
    assert experiment["execute_mean_ns"] == pytest.approx(whole / executions)
    # Its old name, until 0.4.
    assert experiment["execute_total_ms"] == pytest.approx(whole / executions / 1e6)


@pytest.mark.parametrize("change", CHANGES)
def test_no_changed_stamp_of_a_recording_makes_a_wrong_split(
    profiled: Profiled, change: str
) -> None:
    """N16: on a file of this host, where executions differ."""
    (path,) = profiled.run.glob("*/*.etdump")
    dump = load_etdump(path)
    assert not examine_events(dump).impossible.any()
    executions = raw_executions(path)
    longest: dict[str, int] = {}
    for _, leaves in executions:
        for name, length in leaves.items():
            longest[name] = max(longest.get(name, 0), length)
    for row in range(0, len(dump.profile.name_id), 11):
        for column in ("start_time", "end_time"):
            damaged = changed(dump, row, column, CHANGES[change])
            split = split_operators(keep_near_median([examine_executions(damaged)]))
            assert all(0 <= times.share <= 1 for _, times in split.parts)
            assert sum(times.total_ns for _, times in split.parts) == timed(split).execute.total_ns
            # A mean over sound executions is within them, and a second is far outside.
            assert all(timed(row).mean_ns <= longest[row.label] + 1 for row in split.rows)
            assert timed(split).execute.mean_ns <= max(length for length, _ in executions) + 1


def test_the_command_says_what_it_left_out_of_a_damaged_recording(
    profiled: Profiled, tmp_path: Path
) -> None:
    """N16: as a user sees it; a file of nothing but noise ends in exit code 4."""
    (path,) = profiled.run.glob("*/*.etdump")
    dump, data = load_etdump(path), path.read_bytes()
    operators = np.flatnonzero(dump.profile.delegate_debug_id_str_id >= 0)[-100::7]
    ends = [int(dump.profile.end_time[row]) for row in operators]
    for count, code in ((1, 0), (len(ends), 4)):
        damaged = data
        for end in ends[:count]:
            old, new = end.to_bytes(8, "little"), (end + S).to_bytes(8, "little")
            damaged = damaged.replace(old, new)
        (tmp_path / "x.etdump").write_bytes(damaged)
        done = etprof(tmp_path, "analyze", "x.etdump", "--full")
        assert done.exit_code == code, done.stderr
        said = " ".join((done.stdout + done.stderr).split())
        left_out = re.search(r"of 100 executions (is|are) left out everywhere", said)
        assert (left_out is not None) == (code == 0)
        assert ("the first is event" in said) == (code == 4)


def test_csv_twins_have_the_numbers_of_the_json(profiled: Profiled) -> None:
    """R154: neither file told of an event's execution and backend, of an operator's microkernel."""
    (path,) = profiled.run.glob("*/*_ops_stats.csv")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    experiment = profiled.summary["experiments"]["linux_auto"]  # type: ignore[index]
    assert [row["label"] for row in rows] == [o["label"] for o in experiment["operators"]]
    assert [float(row["mean_ns"]) for row in rows] == [
        o["mean_ns"] for o in experiment["operators"]
    ]
    (timeline,) = profiled.run.glob("*/*_timeline.csv")
    with timeline.open(newline="") as stream:
        events = list(csv.DictReader(stream))
    executions = [row["execution"] for row in events if row["name"] == "Method::execute"]
    assert executions == [str(number) for number in range(1 + 10 + 100)]
    assert {row["backend"] for row in events if row["delegated"] == "1"} == {"xnnpack"}
    assert {row["backend"] for row in events if row["delegated"] == "0"} == {""}
    hints = [row["kernel_hint"] or None for row in rows]
    assert hints == [operator["kernel_hint"] for operator in experiment["operators"]]


def test_metrics_keep_every_raw_sample(profiled: Profiled) -> None:
    metrics = json.loads((profiled.run / "metrics.json").read_text())
    blocks = metrics["experiments"]["linux_auto"]["blocks"]
    assert [block["block"] for block in blocks] == list(range(6))
    for block in blocks:
        assert len(block["latency_ns"]) >= 20
        assert sum(block["latency_ns"]) >= 0.05e9
        assert len(block["warmup_latency_ns"]) == 10


def test_peak_memory_is_the_runners_own(profiled: Profiled) -> None:
    metrics = json.loads((profiled.run / "metrics.json").read_text())
    for block in metrics["experiments"]["linux_auto"]["blocks"]:
        memory = block["memory"]
        assert memory["rss_after_load_bytes"] <= memory["peak_rss_bytes"] < 100 * 2**20
        assert 2**20 < memory["pss_bytes"] <= memory["peak_rss_bytes"]


def test_a_program_that_is_up_to_date_is_not_exported_again(profiled: Profiled) -> None:
    words = ("--dtype", "fp32", "--threads", "1", "--blocks", "1", "--min-seconds", "0.001")
    again = etprof(profiled.folder, "profile", "toy_cnn", *words, "--out", "second")
    assert again.exit_code == 0
    assert "exported earlier; --export exports it again" in again.stderr


def test_json_is_the_summary(profiled: Profiled) -> None:
    completed = etprof(profiled.folder, "analyze", profiled.run, "--json")
    assert json.loads(completed.stdout) == profiled.summary


def test_an_etdump_alone_is_enough(profiled: Profiled, tmp_path: Path) -> None:
    (path,) = profiled.run.glob("*/*.etdump")
    shutil.copy(path, tmp_path / "alone.etdump")
    completed = etprof(tmp_path, "analyze", "alone.etdump", "--full")
    assert completed.exit_code == 0
    assert "Method::execute" in completed.stdout
    assert "latency without tracer, load and memory are not known" in completed.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["alone.etdump"]


def test_without_its_json_files_a_run_can_still_be_analysed(
    profiled: Profiled, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(profiled.run, run)
    for name in ("manifest.json", "metrics.json", "analysis_summary.json"):
        (run / name).unlink()
    completed = etprof(tmp_path, "analyze", run, "--full")
    assert completed.exit_code == 0
    assert "no metrics.json" in completed.stdout
    assert (run / "analysis_summary.json").is_file()


def test_analyze_imports_neither_torch_nor_pandas(profiled: Profiled) -> None:
    code = (
        "import sys; from etprof.cli import main; "
        f"main(['analyze', {str(profiled.run)!r}, '--json', '--out', {str(profiled.folder)!r}]); "
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    completed = run_command([sys.executable, "-c", code])
    assert completed.exit_code == 0
    for heavy in ("torch", "executorch", "pandas", "scipy"):
        assert f"'{heavy}'" not in completed.stderr, heavy


def test_doctor_and_models_answer_in_json(tmp_path: Path) -> None:
    doctor = json.loads(etprof(tmp_path, "doctor", "--json").stdout)
    assert {f["part"]: f["status"] for f in doctor["findings"]}["etprof-runner"] == "ok"
    models = json.loads(etprof(tmp_path, "models", "--json").stdout)
    assert "toy_cnn" in {model["name"] for model in models["models"]}


def test_a_run_that_fails_at_once_leaves_the_earlier_one_in_its_place(
    profiled: Profiled, tmp_path: Path
) -> None:
    """Its folder was renamed, and nothing was there in its place: `compare` did not find it."""
    shutil.copytree(profiled.folder, tmp_path / "copy")
    folder = tmp_path / "copy"
    before = (folder / "out_toy_cnn/runs/linux/manifest.json").read_bytes()
    (folder / "short.bin").write_bytes(b"1234")
    program = "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp32.pte"
    done = etprof(folder, "profile", program, "--inputs", "short.bin")
    assert done.exit_code == 4
    assert "Nothing was measured: the earlier run is in out_toy_cnn/runs/linux again" in done.stderr
    assert [path.name for path in (folder / "out_toy_cnn/runs").iterdir()] == ["linux"]
    assert (folder / "out_toy_cnn/runs/linux/manifest.json").read_bytes() == before
