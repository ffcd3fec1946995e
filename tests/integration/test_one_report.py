"""T3, A-D6: evidence is a part of the one report, whichever command measured or shows it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Final

import pytest

import etprof as package
from etprof.base.errors import UsageError
from etprof.views.formats import format_names
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, Failure, RunSpec

RUN: Final = "out"
TABLES: Final = ("kernels", "kernel_calls", "kernel_uses", "outputs")


def do(folder: Path, spec: RunSpec, *words: object) -> Done:
    (folder / "m.pte").write_bytes(b"program")
    with simulated_host(lambda **_: SimTarget(spec)):
        return etprof(folder, *words)


def spec_of(platform: str, **more: Any) -> RunSpec:  # noqa: ANN401
    return RunSpec(capabilities=Capabilities(platform=platform), **more)


def config_of(folder: Path, *modes: str, platform: str = "emulator", **more: object) -> Path:
    experiments = [{"name": f"{platform}_{sme}", "sme": sme, **more} for sme in modes]
    target = {"kind": platform}
    document = {"model": "m.pte", "output_root": RUN, "target": target, "experiments": experiments}
    document["measurement"] = {"blocks": 2, "min_seconds": 0.001}
    (folder / "c.json").write_text(json.dumps(document))
    return folder / "c.json"


def tables_of(folder: Path) -> dict[str, Any]:
    run = package.load_run(folder / RUN)
    return {name: run.table(name).to_dict("records") for name in TABLES}


@pytest.mark.parametrize("platform", ["emulator", "linux"])
def test_every_command_shows_the_same_tables_of_the_same_launches(
    platform: str, tmp_path: Path
) -> None:
    """A-D6: `run` on the emulator never showed them, `analyze`, report and API never again."""
    folders = tmp_path / "profile", tmp_path / "run"
    for folder in folders:
        folder.mkdir()
    words = ("--target", "emulator") if platform == "emulator" else ("--blocks", 2)
    spec = spec_of(platform)
    profiled = do(folders[0], spec, "profile", "m.pte", "--out", RUN, *words, "--full")
    configured = do(folders[1], spec, "run", config_of(folders[1], "sme2", "sme1", "off",
                                                       platform=platform))  # fmt: skip
    assert (profiled.exit_code, configured.exit_code) == (0, 0), configured.stderr
    found = [tables_of(folder) for folder in folders]
    assert str(found[0]) == str(found[1])
    assert {use["mode"] for use in found[0]["kernel_uses"]} == {"sme2", "sme1"}
    assert {each["grade"] for each in found[0]["kernels"]} == {"A"}
    again = do(folders[0], spec, "analyze", RUN, "--full")
    assert again.stdout == profiled.stdout
    assert profiled.stdout.count("Microkernels by operator") == 1
    assert profiled.stderr.count("The report is") == 1
    assert do(folders[0], spec, "report", RUN, "--format", "csv,html,md").exit_code == 0
    with (folders[0] / RUN / "report_kernel_uses.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == len(found[0]["kernel_uses"])
    for page in ("report.html", "report.md"):
        assert "Microkernels by operator" in (folders[0] / RUN / page).read_text()


def test_the_json_of_a_profile_is_the_reports(tmp_path: Path) -> None:
    """A-D6: the evidence was printed once and stood in no file."""
    done = do(tmp_path, spec_of("emulator"), "profile", "m.pte", "--out", RUN,
              "--target", "emulator", "--json")  # fmt: skip
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / RUN / "analysis_summary.json").read_text())
    modes = {each["mode"]: each["sme2"] for each in printed["kernel_evidence"]["modes"]}
    assert modes == {"sme2": 9, "sme1": 0, "off": 0}
    assert {each["against"] for each in printed["outputs"]} == {"emulator_off"}


@pytest.mark.parametrize("mode", ["kernels", "outputs"])
def test_a_run_without_any_etdump_is_reported(mode: str, tmp_path: Path) -> None:
    """T3: a trace-only run could not be analysed (exit code 4)."""
    spec = spec_of("emulator")
    config = config_of(tmp_path, "sme2", "off", mode=mode)
    done = do(tmp_path, spec, "run", config)
    assert done.exit_code == 0, done.stderr
    found = tables_of(tmp_path)
    assert bool(found["kernels"]) is (mode == "kernels")
    assert bool(found["outputs"]) is (mode == "outputs")
    for words in (
        ("analyze", RUN), ("analyze", RUN, "--json"), ("validate", RUN),
        ("report", RUN, "--format", ",".join(format_names())),
    ):  # fmt: skip
        done = do(tmp_path, spec, *words)
        assert done.exit_code == 0 or words[0] == "validate", (words, done.stderr)
    with pytest.raises(UsageError, match="no per-operator breakdown"):
        package.load_run(tmp_path / RUN).event_blocks()


def test_a_split_that_failed_leaves_its_evidence_and_the_targets_exit_code(tmp_path: Path) -> None:
    """A-D7, I3: it ended in rc 4 after kernels were counted, without any evidence."""
    spec = spec_of("emulator", failure=Failure(instrument="etdump"))
    done = do(tmp_path, spec, "profile", "m.pte", "--out", RUN, "--target", "emulator", "--full")
    assert done.exit_code == 5
    assert "Microkernels by operator" in done.stdout
    assert len(tables_of(tmp_path)["kernel_calls"]) == 3
    assert "emulator_sme2, operators: launch 0 failed" in done.stderr


def test_a_run_of_which_nothing_is_left_says_so_in_one_line(tmp_path: Path) -> None:
    """I3: the reasons stood alone; with --json nothing said that it was etprof which had failed."""
    done = do(
        tmp_path,
        spec_of("linux", failure=Failure(launches=frozenset(range(99)))),
        "profile",
        "m.pte",
        "--out",
        RUN,
        "--json",
    )
    assert (done.exit_code, done.stdout) == (5, ""), done.stderr
    assert done.stderr.splitlines()[-1].startswith("etprof: ")
