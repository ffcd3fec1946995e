"""A stranger's run directory, config or matrix starts no command unasked (S4)."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etprof.cli import main
from etprof.export.request import ExportRequest
from etprof.targets.runner import find_host_runner
from tests.manifests import edit_manifest

if TYPE_CHECKING:
    from tests.integration.conftest import Exports


@pytest.fixture(name="folder")
def folder_fixture(exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a program in it."""
    shutil.copy(exports.get(ExportRequest("toy_cnn", "fp32")).pte, tmp_path / "model.pte")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(experiment: dict[str, Any], **others: object) -> dict[str, Any]:
    return {
        "model": "model.pte",
        "output_root": "out",
        "experiments": [{"name": "one", "runs": 1, "warmup": 0, **experiment}],
        "measurement": {"blocks": 1, "min_seconds": 0.001, "etdump_runs": 1},
        **others,
    }


def write_manifest(folder: Path, content: dict[str, Any]) -> Path:
    """Writes a run directory as a stranger may: its manifest alone."""
    run = folder / "theirs"
    run.mkdir()
    manifest = {
        "schema_version": 1,
        "status": "finished",
        "platform": "linux",
        "model": {"name": "model", "path": "model.pte"},
        "target": {},
        "settings": {},
        "experiments": [],
        "launches": [],
        "config": {"path": None, "content": content},
    }
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return run


def touch(folder: Path) -> str:
    """A line for a shell, which leaves a mark."""
    return f"touch {shlex.quote(str(folder / 'marker'))}"


def script(folder: Path) -> Path:
    """Returns a program that leaves a mark."""
    path = folder / "evil.sh"
    path.write_text(f"#!/bin/sh\n{touch(folder)}\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def choices(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        "launcher": {"launcher": ["sh", "-c", f"{touch(folder)}; exit 1"]},
        "runner_path": {"runner_path": str(script(folder))},
        "extra_args": {"extra_args": [f"--result={folder}/marker"]},
        "preset": {"preset": "host"},
    }


@pytest.mark.parametrize("field", ["launcher", "runner_path", "extra_args", "preset"])
def test_a_manifests_own_command_is_shown_and_not_started(
    folder: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    """S4: exit code 2, with field and flag in one line, before the device is even looked at."""
    chosen = choices(folder)[field]
    built = folder / "build/host/cpp/runner/etprof-runner"
    built.parent.mkdir(parents=True)
    shutil.copy(script(folder), built)
    run = write_manifest(folder, config(chosen))
    assert main(["run", "--from-manifest", str(run)]) == 2
    *shown, message = capsys.readouterr().err.splitlines()
    # What the preset of a folder of theirs leads to is named by its path.
    assert f"experiments.0.{field.replace('preset', 'runner_path')}" in message
    assert "--allow-launcher" in message
    assert any("model.pte" in line and "out" in line for line in shown)
    (value,) = chosen.values()
    for word in [value] if isinstance(value, str) else value:
        assert any(shlex.quote(word) in line for line in shown)
    assert not (folder / "marker").exists()
    assert not (folder / "out").exists()


@pytest.mark.parametrize("field", ["launcher", "runner_path", "preset"])
def test_it_starts_when_the_user_says_so(folder: Path, field: str) -> None:
    """S4: the flag is the only thing that was missing; so the test above can fail."""
    chosen = choices(folder)[field]
    built = folder / "build/host/cpp/runner/etprof-runner"
    built.parent.mkdir(parents=True)
    shutil.copy(script(folder), built)
    run = write_manifest(folder, config(chosen))
    assert main(["run", "--from-manifest", str(run), "--allow-launcher"]) == 5
    assert (folder / "marker").exists()


@pytest.mark.parametrize("model", ["evil.py:Net", "toy_cnn:fp16"])
def test_a_manifest_exports_no_model(
    folder: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """S4: to export a model is to run its code."""
    (folder / "evil.py").write_text(f"open({str(folder / 'marker')!r}, 'w')", encoding="utf-8")
    run = write_manifest(folder, config({}, model=model))
    assert main(["run", "--from-manifest", str(run), "--allow-launcher"]) == 2
    assert model in capsys.readouterr().err
    assert not (folder / "marker").exists()


@pytest.mark.parametrize("field", ["connect", "remote_folder"])
def test_a_manifest_chooses_no_device_to_connect_to(
    folder: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    """S4: nor a folder on it, in which files are removed."""
    target = {"kind": "android", field: "192.0.2.1:5555" if field == "connect" else "/sdcard"}
    run = write_manifest(folder, config({}, target=target))
    assert main(["run", "--from-manifest", str(run)]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"target.{field}" in message
    assert "--allow-launcher" in message


def test_a_manifest_without_commands_is_repeated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S4: also with the runner that was installed, and after saying what it starts."""
    run = write_manifest(folder, config({"runner_path": str(find_host_runner())}))
    assert main(["run", "--from-manifest", str(run)]) == 0
    assert "runs model.pte on local; writes to out" in capsys.readouterr().err
    assert (folder / "out/manifest.json").is_file()


def test_no_character_of_a_manifest_hides_what_it_would_start(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S4, S3: cursor movements and right-to-left marks are shown, not obeyed."""
    words = ["evil", "\x1b[2K\r", "\u202egood", "a\nb"]
    run = write_manifest(folder, config({"launcher": words}))
    assert main(["run", "--from-manifest", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.replace("\n", "").isprintable()
    (line,) = [line for line in error.splitlines() if "evil" in line]
    for shown in (r"\x1b[2K\r", r"\u202egood", r"a\nb"):
        assert shown in line


@pytest.mark.parametrize("flags", [["--dry-run"], ["--dry-run", "--json"]])
def test_a_dry_run_shows_and_starts_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """S4: how to look at a stranger's run; no flag is needed for it."""
    run = write_manifest(folder, config(choices(folder)["launcher"]))
    assert main(["run", "--from-manifest", str(run), *flags]) == 0
    out = capsys.readouterr().out
    launcher = choices(folder)["launcher"]["launcher"]
    if "--json" in flags:
        (start,) = json.loads(out)["starts"]["experiments"]
        assert start["launcher"] == launcher
    else:
        assert shlex.join(launcher) in " ".join(out.split())
    assert not (folder / "marker").exists()


@pytest.mark.parametrize("command", [["config", "check"], ["run", "--dry-run"]])
def test_a_config_shows_what_it_would_start(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """S4: a config that the user names may start anything; two commands show what."""
    (folder / "config.json").write_text(json.dumps(config(choices(folder)["launcher"])))
    assert main([*command, "config.json"]) == 0
    launcher = choices(folder)["launcher"]["launcher"]
    assert shlex.join(launcher) in " ".join(capsys.readouterr().out.split())
    assert not (folder / "marker").exists()


def test_the_flag_belongs_to_manifests(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S4: a flag without effect would be taken for protection."""
    (folder / "config.json").write_text(json.dumps(config({})))
    assert main(["run", "config.json", "--allow-launcher"]) == 2
    assert "--from-manifest" in capsys.readouterr().err


def test_resume_takes_no_command_from_the_run_directory(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S4: a manifest that was exchanged since is a difference, not an order."""
    (folder / "config.json").write_text(json.dumps(config({})))
    assert main(["run", "config.json"]) == 0

    def exchange(manifest: dict[str, Any]) -> None:
        command = ["sh", "-c", touch(folder)]
        manifest["launches"] = []
        manifest["experiments"][0] |= {"launcher": command, "runner": str(script(folder))}
        manifest["config"]["content"]["experiments"][0]["launcher"] = ["sh", str(script(folder))]

    edit_manifest(folder / "out", exchange)
    assert main(["run", "config.json", "--resume"]) == 2
    assert "launcher was" in capsys.readouterr().err
    assert not (folder / "marker").exists()


@pytest.mark.parametrize("preset", ["../evil", "/evil", "a/b", ""])
def test_a_preset_is_a_name(folder: Path, capsys: pytest.CaptureFixture[str], preset: str) -> None:
    """S4: not a way out of build/, in a config and in a matrix."""
    (folder / "config.json").write_text(json.dumps(config({"preset": preset})))
    assert main(["config", "check", "config.json"]) == 2
    assert "experiments.0.preset" in capsys.readouterr().err
    matrix = {"models": ["toy_cnn"], "devices": [{"name": "d", "preset": preset}]}
    (folder / "matrix.json").write_text(json.dumps(matrix))
    assert main(["bench", "matrix.json", "--dry-run"]) == 2
    assert "devices.0.preset" in capsys.readouterr().err


def test_the_plan_of_a_matrix_shows_runners_and_imports_no_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S4: a model's file is code; `bench --dry-run` looks at a stranger's matrix safely."""
    model = folder / "model.py"
    model.write_text(f"open({str(folder / 'marker')!r}, 'w')\n", encoding="utf-8")
    device = {"name": "board", "runner_path": str(script(folder))}
    matrix = {"models": [f"{model}:Net"], "devices": [device]}
    (folder / "matrix.json").write_text(json.dumps(matrix))
    assert main(["bench", "matrix.json", "--dry-run"]) == 0
    assert str(folder / "evil.sh") in capsys.readouterr().out
    assert not (folder / "marker").exists()


def test_modules_in_the_current_folder_are_not_imported(folder: Path, exports: Exports) -> None:
    """S4: a process of ours that is started in a stranger's folder uses none of its files."""
    from etprof.export.request import ExportOptions
    from etprof.export.runtime_check import check_bundle

    request = ExportRequest("toy_cnn", "fp32", options=ExportOptions(bundle=True))
    bundle = exports.get(request).bundle
    (folder / "json.py").write_text(f"open({str(folder / 'marker')!r}, 'w')\n", encoding="utf-8")
    assert Path.cwd() == folder
    assert str(folder) not in sys.path
    assert check_bundle(bundle, {"forward": 1.0})["forward"].passed
    assert not (folder / "marker").exists()
