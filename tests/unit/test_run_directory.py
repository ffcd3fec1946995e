"""Names and layout of run directories; damaged files are named, missing ones tolerated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etprof.errors import InputFileError, OutputError
from etprof.run_directory import (
    experiment_files,
    find_etdumps,
    load_manifest,
    load_metrics,
    runs_folder,
    safe_name,
    set_aside,
)


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


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    os.utime(path / "manifest.json", (0, 0))
    return path


def test_an_earlier_run_is_kept_under_its_time(tmp_path: Path) -> None:
    for expected in ("linux_19700101T000000Z", "linux_19700101T000000Z_2"):
        moved = set_aside(make_run(tmp_path / "linux"))
        assert moved == tmp_path / expected
        assert (tmp_path / expected / "manifest.json").exists()


def test_nothing_is_set_aside_where_there_is_nothing(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "missing") is None
    assert set_aside(tmp_path) is None


def test_a_folder_with_other_things_is_never_moved(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").touch()
    with pytest.raises(OutputError, match="exists and is not a run directory"):
        set_aside(tmp_path)
    assert (tmp_path / "thesis.doc").exists()


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
    assert str(caught.value) == (
        f"{tmp_path}/metrics.json is damaged: {message}; delete it to analyse the ETDumps alone"
    )
