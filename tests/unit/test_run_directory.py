"""Names and layout of run directories; damaged files are named, missing ones tolerated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError, OutputError
from etprof.run.directory import (
    experiment_files,
    find_etdumps,
    list_files,
    load_metrics,
    put_back,
    runs_folder,
    safe_name,
    set_aside,
)
from etprof.run.manifest import WAY_OUT, load_manifest


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("toy_cnn", "toy_cnn"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("a b/c\n", "a_b_c_"),
        (".hidden", "hidden"),
        ("", "model"),
        ("...", "model"),
        ("$(rm -rf ~)", "_rm_-rf_"),
    ],
)
def test_names_from_outside_are_never_paths(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_the_layout_of_the_contract() -> None:
    run = runs_folder("toy_cnn", "linux")
    assert run == Path("out_toy_cnn/runs/linux")
    files = experiment_files(run, "toy_cnn", "linux_sme2_on", 4)
    assert files.etdump == Path(
        "out_toy_cnn/runs/linux/linux_sme2_on/toy_cnn_linux_sme2_on_t4.etdump"
    )


def test_etdumps_are_found_in_experiments_and_flat(tmp_path: Path) -> None:
    for name in ("a/x.etdump", "b/y.etdp", "z.etdump", "a/b/too_deep.etdump", "a/x.log"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    assert [p.relative_to(tmp_path).as_posix() for p in find_etdumps(tmp_path)] == [
        "a/x.etdump",
        "b/y.etdp",
        "z.etdump",
    ]


MANIFEST = json.dumps(
    {
        "schema_version": 1,
        "platform": "linux",
        "model": {"name": "m"},
        "experiments": [{"name": "linux", "sme": "auto", "threads": 1}],
        "files": {"extra.bin": "0"},
    }
)


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(MANIFEST)
    os.utime(path / "manifest.json", (0, 0))
    return path


def test_an_earlier_run_is_kept_under_its_time(tmp_path: Path) -> None:
    for expected in ("linux_19700101T000000Z", "linux_19700101T000000Z_2"):
        moved = set_aside(make_run(tmp_path / "linux"))
        assert moved == tmp_path / expected
        assert (tmp_path / expected / "manifest.json").exists()


def test_an_earlier_run_is_put_back_where_nothing_was_measured(tmp_path: Path) -> None:
    run = make_run(tmp_path / "linux")
    moved = set_aside(run)
    assert moved is not None
    assert put_back(moved, run)
    assert (run / "manifest.json").exists()
    # AND over an empty folder
    moved = set_aside(run)
    assert moved is not None
    run.mkdir()
    assert put_back(moved, run)
    assert (run / "manifest.json").exists()
    # BUT NOT over anything
    moved = set_aside(run)
    assert moved is not None
    run.mkdir()
    (run / "launch.log").write_text("kept")
    assert not put_back(moved, run)
    assert (run / "launch.log").read_text() == "kept"
    assert (moved / "manifest.json").exists()


def test_nothing_is_set_aside_where_there_is_nothing(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "missing") is None
    assert set_aside(tmp_path) is None


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"thesis.doc": ""}, "exists and is not a run directory"),
        ({"linux/m_linux_t1.etdump": ""}, "exists and is not a run directory"),
        ({"manifest.json": "{}"}, "has a manifest.json that is damaged, or of something else"),
        ({"manifest.json": '{"manifest_version": 3, "name": "extension"}'}, "of something else"),
        ({"manifest.json": MANIFEST[:-1]}, "damaged"),
        ({"manifest.json": MANIFEST, "thesis.doc": ""}, "holds thesis.doc, which is of no measure"),
        ({"manifest.json": MANIFEST, "other/manifest.json": MANIFEST}, "holds other"),
        ({"manifest.json": MANIFEST, "metrics.json/thesis.doc": ""}, "holds metrics.json"),
    ],
)
def test_a_folder_with_other_things_is_never_moved(
    tmp_path: Path, files: dict[str, str], words: str
) -> None:
    """S7: any folder with some manifest.json was moved aside."""
    for name, text in files.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(text)
    with pytest.raises(OutputError, match=rf"{words}.*; move it away yourself, or choose another"):
        set_aside(tmp_path / "run")
    for name, text in files.items():
        assert (tmp_path / "run" / name).read_text() == text


def test_a_pipe_for_a_manifest_is_no_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(OutputError, match="damaged"):
        set_aside(tmp_path)


def test_all_that_a_run_may_hold_is_moved_with_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "linux")
    for name in ("metrics.json", "analysis_summary.json", "report.html", "report_samples.csv",
                 "report.perfetto-trace", "calibration.json", "kernel_evidence.json",
                 ".metrics.json.0123456789abcdef", "linux/anything.xyz", "extra.bin"):  # fmt: skip
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).touch()
    (run / "left_out").mkdir()
    (run / "left_out" / "m_left_out_t4_b0_result.json").touch()
    moved = set_aside(run)
    assert moved is not None
    assert len(list(moved.rglob("*"))) == 14
    assert not run.exists()


def test_missing_json_files_are_none(tmp_path: Path) -> None:
    assert load_metrics(tmp_path) is None
    assert load_manifest(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "document: Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ('{"schema_version": 2}', "schema_version: Input should be 1"),
        (
            (
                '{"schema_version": 1, "times_are_meaningful": true, "experiments": '
                '{"a": {"sme": "off", "threads": -3, "blocks": []}}}'
            ),
            "experiments.a.threads: Input should be greater than or equal to 0",
        ),
    ],
)
def test_damaged_metrics_are_named_with_the_field(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(InputFileError) as caught:
        load_metrics(tmp_path)
    assert str(caught.value) == (f"{tmp_path}/metrics.json is damaged: {message}; {WAY_OUT}")


@pytest.mark.parametrize(
    ("path", "kind", "is_measured", "is_temporary"),
    [
        ("metrics.json", "metrics", True, False),
        ("delegation.json", "delegation", True, False),
        ("half.delegation.json", "delegation", True, False),
        ("half.export.json", "export", True, False),
        ("off/m_off_t1.etdump", "etdump", True, False),
        ("off/m_off_t1_b00_result.json", "result", True, False),
        ("off/m_off_t1_kernels.json", "kernels", True, False),
        ("off/m_off_t1_clock.json", "clock", True, False),
        ("off/m_off_t1_instructions.json", "instructions", True, False),
        ("off/m_off_t1_outputs/output_0.bin", "outputs", True, False),
        ("off/m_off_t1.log", "log", True, False),
        ("off/m_off_t1_logcat.txt", "log", True, False),
        ("off/m_source_1.txt", "source", True, False),
        ("manifest.json", "manifest", False, False),
        ("analysis_summary.json", "summary", False, False),
        ("report_operators.csv", "report", False, False),
        ("calibration.json", "report", False, False),
        ("off/m_off_t1_timeline.csv", "table", False, False),
        (".metrics.json.0a1b2c3d", "temporary", False, True),
        ("off/m.etdump.tmp12", "temporary", False, True),
        ("off/.m_off_t1_outputs.0123456789ab/output_0.bin", "temporary", False, True),
    ],
)
def test_what_each_file_of_a_run_is(
    tmp_path: Path, path: str, kind: str, is_measured: bool, is_temporary: bool
) -> None:
    """Evidence is guarded, and what a writer had not finished is cleared away."""
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x")
    (found,) = list_files(tmp_path).items()
    assert found[0] == path
    assert (found[1].name, found[1].is_measured, found[1].is_temporary) == (
        kind, is_measured, is_temporary,
    )  # fmt: skip
