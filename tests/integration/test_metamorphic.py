"""I7: what must not matter does not, and what is turned round is mirrored, on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Noise, RunSpec

SPEC = RunSpec(noise=Noise(block=0.01, call=0.02), seed=11)
MODES = ("off", "sme1", "sme2")


class Ordered(SimTarget):
    """Noise by mode and launch of that mode, so that the order of the experiments plays no part."""

    factor = 1.0

    def _latencies(self, mode: str, number: int, iterations: int) -> list[int]:
        before = sum(self.spec.in_force(each.sme) == mode for each in self.requests[:number])
        spec = replace(self.spec, seed=1000 * MODES.index(mode) + before)
        alone = SimTarget(spec)._latencies(mode, 0, iterations)
        return [round(self.factor * each) for each in alone]


def measured(folder: Path, name: str, modes: Sequence[str] = MODES, factor: float = 1.0) -> Done:
    """A run of these modes, and its summary."""
    (folder / "m.pte").write_bytes(b"program")
    document = {
        "model": "m.pte",
        "output_root": name,
        "experiments": [{"name": mode, "sme": mode} for mode in modes],
        "measurement": {"blocks": 8, "etdump_runs": 4},
    }
    (folder / "c.json").write_text(json.dumps(document))

    def make(**_: object) -> SimTarget:
        target = Ordered(SPEC)
        target.factor = factor
        return target

    with simulated_host(make):
        done = etprof(folder, "run", "c.json", "--json")
    assert done.exit_code == 0, done.stderr
    return done


def effects(done: Done) -> dict[tuple[str, str], dict[str, Any]]:
    """The latency's effect of each comparison, by the names of its sides."""
    return {
        (entry["baseline"]["experiment"], entry["candidate"]["experiment"]): entry["latency"]
        for entry in json.loads(done.stdout)["comparisons"]
    }


def compared(folder: Path, one: str, other: str) -> dict[str, Any]:
    done = etprof(folder, "compare", one, other, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    entry = document["comparisons"][0] if "comparisons" in document else document
    found: dict[str, Any] = entry["latency"]
    return found


MIRRORED = {"faster": "slower", "slower": "faster"}


def test_turned_round_the_verdict_is_mirrored(tmp_path: Path) -> None:
    measured(tmp_path, "run")
    there = compared(tmp_path, "run:off", "run:sme2")
    back = compared(tmp_path, "run:sme2", "run:off")
    assert back["verdict"] == MIRRORED.get(there["verdict"], there["verdict"]) != there["verdict"]
    assert back["speed_up"] == pytest.approx(1 / there["speed_up"])
    assert back["p_value"] == pytest.approx(there["p_value"])


def test_a_machine_of_another_speed_has_the_same_ratios(tmp_path: Path) -> None:
    slow, fast = (measured(tmp_path, f"run{f}", factor=f) for f in (4.0, 1.0))
    for key, effect in effects(fast).items():
        assert effects(slow)[key]["speed_up"] == pytest.approx(effect["speed_up"], rel=1e-4)
        assert effects(slow)[key]["verdict"] == effect["verdict"]


def test_the_order_of_the_experiments_does_not_matter(tmp_path: Path) -> None:
    one = effects(measured(tmp_path, "one"))
    other = effects(measured(tmp_path, "other", MODES[::-1]))
    assert one == other


def test_a_third_experiment_changes_nothing_of_two(tmp_path: Path) -> None:
    three = effects(measured(tmp_path, "three"))
    two = effects(measured(tmp_path, "two", ("off", "sme2")))
    assert two["off", "sme2"] == three["off", "sme2"]


def test_reading_twice_says_the_same(tmp_path: Path) -> None:
    first = measured(tmp_path, "run")
    for words in (("validate", "run"), ("report", "run"), ("analyze", "run", "--quiet")):
        assert etprof(tmp_path, *words).exit_code == 0
    again = etprof(tmp_path, "analyze", "run", "--json")
    assert json.loads(again.stdout) == json.loads(first.stdout)


def test_a_run_that_has_another_name_is_the_same(tmp_path: Path) -> None:
    measured(tmp_path, "run")
    before = compared(tmp_path, "run:off", "run:sme2")
    (tmp_path / "run").rename(tmp_path / "another")
    assert compared(tmp_path, "another:off", "another:sme2") == before
