"""`etprof run` with all purposes on four kinds of target: what was launched decides, not the kind.

`tests/integration/android/test_all_purposes.py` asks the same of the real ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from etprof.targets.registry import TARGETS, kind_of
from tests.world.host import Done, etprof, simulated_host
from tests.world.reports import (
    OF_TIMES,
    columns_of,
    grades_of,
    launches_of,
    times_in,
    write_config,
)
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

MODES = ("off", "sme2")
KINDS = [each.name for each in TARGETS]


def measure(folder: Path, kind: str, *, counts: bool) -> tuple[Done, SimTarget]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.pte").write_bytes(b"program")
    target = SimTarget(RunSpec(capabilities=Capabilities(platform=kind)))
    config = write_config(folder, folder / "m.pte", {"kind": kind}, MODES, counts=counts)
    with simulated_host(lambda **_: target):
        return etprof(folder, "run", config), target


def report_of(folder: Path) -> dict[str, Any]:
    assert etprof(folder, "report", "run", "--format", "json").exit_code == 0
    document: dict[str, Any] = json.loads((folder / "run/report.json").read_text())
    return document


@pytest.fixture(scope="module", params=[True, False], ids=["counted", "uncounted"])
def timed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, dict[str, Any]]:
    """Whether kernels are asked for, and the report of a machine that proves everything."""
    folder = tmp_path_factory.mktemp("timed")
    assert measure(folder, "linux", counts=request.param)[0].exit_code == 0
    return request.param, report_of(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_launches_decide_what_a_report_has(
    kind: str, timed: tuple[bool, dict[str, Any]], tmp_path: Path
) -> None:
    """T3, T6: one emulator had three policies, and a kind its own tables."""
    policy, (counts, of_timed) = kind_of(kind).policy, timed
    done, _ = measure(tmp_path / kind, kind, counts=counts)
    assert done.exit_code == 0, done.stderr
    passes = {"operators", *(["kernels"] if counts else [])}
    purposes = passes | ({"timing"} if policy.proves_times else set())
    planned = {(f"{sme}_t{n}", purpose) for sme in MODES for n in (1, 2) for purpose in purposes}
    planned |= {("computed", "outputs"), *([("counted", "kernels")] if counts else [])}
    assert launches_of(tmp_path / kind / "run") == planned
    report = report_of(tmp_path / kind)
    grade = {"off": {"A"} if counts else set(), "sme2": {"A" if counts else "B"}}
    assert grades_of(report) == {f"{sme}_t{n}": grade[sme] for sme in MODES for n in (1, 2)}
    # AND the tables are those of a machine with times, less what is made of times alone
    columns, others = columns_of(report), columns_of(of_timed)
    missing = {place for place in others if place not in columns}
    if policy.proves_times:
        assert columns == others
        assert set(times_in(report)) == set(times_in(of_timed))
        return
    assert not list(times_in(report))
    # What findings rest on is of those rules that need no times.
    of_rules = {".findings.findings.evidence"}
    assert {place for place in missing if not set(place.split(".")) & OF_TIMES} <= of_rules
    for place, names in columns.items():
        assert names <= others[place]
        assert others[place] - names <= OF_TIMES
