"""`etprof run` with all purposes on this host, in the emulator and on a phone, by the real runners.

Each report is compared with that of a simulated machine of the same kind, of which
`tests/unit/test_all_purposes.py` says that the kinds agree: so the real ones do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.errors import EtprofError
from etprof.export.request import ExportRequest
from etprof.targets.emulator.installation import locate
from etprof.targets.registry import LOCAL, kind_of
from tests.world.host import etprof, simulated_host
from tests.world.reports import (
    columns_of,
    grades_of,
    launches_of,
    times_in,
    write_config,
)
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated
    from tests.integration.conftest import Exports


def why_no_emulator() -> str:
    """Says what is missing, and how it is had; empty when nothing is."""
    try:
        locate()
    except EtprofError as error:
        return str(error)
    return ""


def report_of(
    folder: Path, model: Path, target: dict[str, object], modes: Sequence[str]
) -> dict[str, Any]:
    """Measures by a config, reports, validates; returns the report."""
    folder.mkdir(exist_ok=True)
    config = write_config(folder, model, target, modes, counts=True)
    for words in (("run", config), ("report", "run", "--format", "json"), ("validate", "run")):
        done = etprof(folder, *words)
        assert done.exit_code == 0, (words, done.stdout, done.stderr)
    document: dict[str, Any] = json.loads((folder / "run/report.json").read_text())
    return document


def check(folder: Path, model: Path, target: dict[str, object], modes: Sequence[str]) -> None:
    kind = kind_of(str(target["kind"]))
    found = report_of(folder, model, target, modes)
    spec = RunSpec(capabilities=Capabilities(platform=kind.name))
    with simulated_host(lambda **_: SimTarget(spec)):
        simulated = report_of(folder / "simulated", model, {"kind": kind.name}, modes)
    assert launches_of(folder / "run") == launches_of(folder / "simulated/run")
    grades = grades_of(found)
    assert grades == grades_of(simulated)
    assert {"A"} in grades.values()
    # Of a table without rows in one of them no column is known; which have rows is the program's.
    columns, others = columns_of(found), columns_of(simulated)
    common = columns.keys() & others.keys()
    assert {".experiments.*.operators", ".kernel_evidence.modes", ".comparisons.operators"} < common
    assert {place: columns[place] for place in common} == {place: others[place] for place in common}
    assert bool(list(times_in(found))) is kind.policy.proves_times
    assert found["outputs"]


def test_this_host(exports: Exports, tmp_path: Path) -> None:
    model = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    check(tmp_path, model, {"kind": kind_of(LOCAL).name}, ["off"])


@pytest.mark.skipif(bool(why_no_emulator()), reason=why_no_emulator())
def test_the_emulator(exports: Exports, tmp_path: Path) -> None:
    model = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    check(tmp_path, model, {"kind": "emulator"}, ["off", "sme2"])


@pytest.mark.android
def test_a_phone(phone: LoopbackDevice, emulated: Emulated, program: Path, tmp_path: Path) -> None:
    target: dict[str, object] = {
        "kind": "android",
        "serial": phone.serial,
        "runner": str(emulated.runner),
        "trace_runner": str(emulated.trace_runner),
    }
    check(tmp_path, program, target, ["off", "sme2"])
