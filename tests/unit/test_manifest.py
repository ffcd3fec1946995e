"""The manifest: one model writes and reads it, and no byte of it changes unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError
from etprof.base.files import hash_file
from etprof.run.directory import load_metrics
from etprof.run.manifest import (
    MANIFEST,
    Experiment,
    LaunchRecord,
    Manifest,
    MeasuredFile,
    MeasuredModel,
    Settings,
    load_manifest,
    new_run_id,
    save_manifest,
)
from etprof.run.runner_result import Cpu
from etprof.run.validation import validate_run
from tests.manifests import edit_manifest
from tests.unit.test_pipeline import EXPERIMENTS, run
from tests.world.sim_target import SimTarget
from tests.world.spec import plain


def a_manifest() -> Manifest:
    return Manifest(
        run_id=new_run_id(),
        platform="linux",
        model=MeasuredModel(name="m", sha256="b" * 64),
        settings=Settings(blocks=2),
        experiments=(Experiment(name="on", threads=2),),
        launches=(
            LaunchRecord(
                experiment="on", purpose="timing", block=0, started_at="now", duration_s=0.1 + 0.2
            ),
        ),
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = a_manifest()
    save_manifest(tmp_path, written)
    read = load_manifest(tmp_path)
    assert read is not None
    assert read.checksum is not None
    assert read.model_copy(update={"checksum": None}) == written


@pytest.mark.slow
def test_any_changed_bit_is_found(tmp_path: Path) -> None:
    """T17: validate accepted eight of eight edits of the manifest, a flipped bit among them."""
    save_manifest(tmp_path, a_manifest())
    path = tmp_path / MANIFEST
    sound = path.read_bytes()
    for place in range(len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(InputFileError, match=r"manifest\.json is damaged"):
            load_manifest(tmp_path)


@pytest.mark.parametrize("change", ["cut", "longer", "spaces"])
def test_a_cut_or_added_byte_is_found(tmp_path: Path, change: str) -> None:
    """T17."""
    save_manifest(tmp_path, a_manifest())
    path = tmp_path / MANIFEST
    sound = path.read_bytes()
    changed = {"cut": sound[:-1], "longer": sound + b" ", "spaces": sound.replace(b"  ", b" ")}
    path.write_bytes(changed[change])
    with pytest.raises(InputFileError, match=r"manifest\.json is damaged"):
        load_manifest(tmp_path)


def test_the_seal_cannot_be_taken_off_by_naming_the_first_schema(tmp_path: Path) -> None:
    """T17: manifests of schema 1 have none, and were read as they are."""
    save_manifest(tmp_path, a_manifest())
    path = tmp_path / MANIFEST
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 1'))
    with pytest.raises(InputFileError, match=r"manifest\.json is damaged"):
        load_manifest(tmp_path)
    # NOR by leaving out all members that schema 1 did not have, but those of its files
    entry = MeasuredFile(kind="etdump", sha256="a" * 64)
    save_manifest(tmp_path, a_manifest().model_copy(update={"files": {"e/m.etdump": entry}}))
    document = json.loads(path.read_text()) | {"schema_version": 1}
    del document["run_id"], document["checksum"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=r"manifest\.json is damaged"):
        load_manifest(tmp_path)


def test_any_member_that_is_removed_is_found(tmp_path: Path) -> None:
    """T17: a removed launch, hash or checksum passed."""
    save_manifest(tmp_path, a_manifest())
    path = tmp_path / MANIFEST
    sound = json.loads(path.read_text())
    assert {"schema_version", "checksum", "run_id", "files"} <= sound.keys()
    for name in sound:
        rest = {key: value for key, value in sound.items() if key != name}
        path.write_text(json.dumps(rest, indent=2) + "\n")
        with pytest.raises(InputFileError, match=r"manifest\.json is damaged"):
            load_manifest(tmp_path)


def test_manifests_of_the_first_schema_are_read(tmp_path: Path) -> None:
    old = {
        "schema_version": 1,
        "platform": "linux",
        "model": {"name": "m"},
        "files": {"metrics.json": "a" * 64},
    }
    (tmp_path / MANIFEST).write_text(json.dumps(old))
    manifest = load_manifest(tmp_path)
    assert manifest is not None
    assert manifest.run_id is None
    assert manifest.files["metrics.json"].sha256 == "a" * 64


def test_a_run_has_one_identity_in_all_its_files(tmp_path: Path) -> None:
    """T14: nothing told one run from another in the same folder."""
    run(tmp_path, SimTarget(plain(1)), EXPERIMENTS[:1])
    folder = tmp_path / "run"
    first, metrics = load_manifest(folder), load_metrics(folder)
    assert first is not None
    assert metrics is not None
    assert first.run_id is not None
    assert metrics.run_id == first.run_id
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], resume=True)
    resumed = load_manifest(folder)
    assert resumed is not None
    assert resumed.run_id == first.run_id
    run(tmp_path / "other", SimTarget(plain()), EXPERIMENTS[:1])
    other = load_manifest(tmp_path / "other/run")
    assert other is not None
    assert other.run_id not in {None, first.run_id}


def test_the_manifest_says_what_ran(tmp_path: Path) -> None:
    runner = tmp_path / "own-runner"
    runner.write_bytes(b"the runner")
    own = EXPERIMENTS[0].model_copy(update={"runner": runner})
    run(tmp_path, SimTarget(plain()), [own])
    manifest = load_manifest(tmp_path / "run")
    assert manifest is not None
    assert [(each.sha256, each.size_bytes) for each in manifest.runners] == [
        (hash_file(runner), 10)
    ]
    assert {each.runner_sha256 for each in manifest.launches} == {hash_file(runner)}
    assert all(f"--iterations={own.iterations}" in e.asked for e in manifest.launches[:1])
    kinds = {entry.kind for entry in manifest.files.values()}
    assert kinds == {"metrics", "result", "etdump", "log", "outputs"}
    assert all(
        entry.size_bytes == (tmp_path / "run" / name).stat().st_size
        for name, entry in manifest.files.items()
    )


def test_a_runner_that_changed_between_launches_is_told(tmp_path: Path) -> None:
    runner = tmp_path / "own-runner"
    own = [EXPERIMENTS[0].model_copy(update={"runner": runner})]
    told = []
    for content in (b"one", b"two"):
        runner.write_bytes(content)
        run(tmp_path, SimTarget(plain(1)), own, resume=content == b"two")
        told.append([f.text for f in validate_run(tmp_path / "run") if "its runner" in f.text])
    assert [len(each) for each in told] == [0, 1]


def test_an_edit_by_its_writer_is_no_damage(tmp_path: Path) -> None:
    save_manifest(tmp_path, a_manifest())
    edit_manifest(tmp_path, lambda document: document.update(platform="mac"))
    manifest = load_manifest(tmp_path)
    assert manifest is not None
    assert manifest.platform == "mac"


def test_runs_are_of_a_kind_by_their_machine_and_precision() -> None:
    base = a_manifest()
    cpu = Cpu(model_name="Neoverse V9", architecture="aarch64", logical_cores=8, features={})
    one = base.model_copy(update={"cpu": cpu})
    assert one.kind == (base.platform, ("Neoverse V9", "aarch64"), base.model.precision)
    assert base.model_copy(update={"cpu": None}).kind[1] is None
