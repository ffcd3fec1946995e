"""What README and docs promise, at the level where a user sees it, in the simulated world."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.limits import USUAL_OPERATOR_LAUNCHES
from etprof.export.request import ExportRequest
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, Noise, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Exports

EMULATOR = Capabilities(platform="emulator")


@dataclass
class World:
    """A folder with a program, and the targets that its commands made."""

    folder: Path
    spec: RunSpec = field(default_factory=RunSpec)
    targets: list[SimTarget] = field(default_factory=list)
    temperatures_c: tuple[float, ...] = ()

    def make(self, **_: object) -> SimTarget:
        made = SimTarget(self.spec)
        made.temperatures_c += self.temperatures_c
        self.targets.append(made)
        return made

    def __call__(self, *words: object) -> Done:
        with simulated_host(self.make):
            return etprof(self.folder, *words)

    def config(self, *experiments: dict[str, Any], **parts: Any) -> str:  # noqa: ANN401
        measurement = {"blocks": 3, "etdump_runs": 2, **parts.pop("measurement", {})}
        document = {"model": "m.pte", "output_root": "run", "experiments": experiments}
        path = self.folder / "config.json"
        path.write_text(json.dumps({**document, "measurement": measurement, **parts}))
        return path.name


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "m.pte").write_bytes(b"program")
    return World(tmp_path)


def row(text: str, first: str, number: int = 0) -> list[str]:
    """The cells of a table's row on a terminal, by its first cell."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()]
    return [each for each in rows if each[0] == first][number]


def test_the_outputs_table_says_which_mode_computes_something_else(world: World) -> None:
    """Promise 3: dB, top-1 and ok on the terminal, and the same in a mode that is wrong."""
    world.spec = RunSpec(capabilities=EMULATOR, outputs={"sme1": b"\0\0\0\x40" + bytes(36)})
    done = world("profile", "m.pte", "--target", "emulator", "--full")
    assert done.exit_code == 6, done.stderr
    outputs = done.stdout[done.stdout.index("\nOutputs") :]
    names = ("emulator_sme2", "emulator_sme1")
    right, wrong = ([cell for cell in row(outputs, name) if cell] for name in names)
    assert "emulator_off" in right
    assert "emulator_off" in wrong
    assert ("100.0 %" in right, "yes" in right) == (True, True)
    assert ("0.0 %" in wrong, "no" in wrong) == (True, True)
    assert any(cell.endswith("dB") for cell in wrong)


WRONG = b"\0\0\0\x40" + bytes(36)


def test_wrong_outputs_end_in_6_wherever_they_are_measured(world: World) -> None:
    """M3-1: the emulator, `analyze --full` and `validate` ended in 0 beside "WRONG OUTPUTS"."""
    world.spec = RunSpec(capabilities=EMULATOR, outputs={"sme2": WRONG})
    words = ["profile", "m.pte", "--target", "emulator", "--out", "run"]
    pair = ["compare", "run:emulator_off", "run:emulator_sme2"]
    for command in (
        words, ["analyze", "run"], ["analyze", "run", "--full"], ["report", "run"], pair,
        [*pair, "--full"], [*pair, "--json"],
    ):  # fmt: skip
        done = world(*command)
        assert done.exit_code == 6, command
        assert "the outputs are wrong: emulator_sme2 computes something else" in done.stderr
    done = world("validate", "run")
    assert (done.exit_code, done.stdout.partition("\n")[0]) == (
        6,
        "run: complete and unchanged, but the outputs are wrong",
    )
    # AND a run that was told to go on all the same is no error anywhere
    assert world(*words[:-1], "allowed", "--allow-inaccurate").exit_code == 0
    assert [world(name, "allowed").exit_code for name in ("analyze", "validate")] == [0, 0]


def test_a_vector_length_that_is_wrong_is_set_aside(world: World) -> None:
    """M3-1: the headline took the wrong pair, though 256 and 512 bits were right."""
    lengths = ["profile", "m.pte", "--target", "emulator", "--sme-vector-bits", "128,512,256"]
    world.spec = RunSpec(capabilities=EMULATOR, outputs={"sme2_128": WRONG, "sme1_128": WRONG})
    done = world(*lengths)
    assert done.exit_code == 6
    assert "SME off → SME2 512" in done.stdout.splitlines()[0]
    assert "emulator_sme2_128 computes something else" in done.stderr
    world.spec = RunSpec(capabilities=EMULATOR)
    done = world(*lengths, "--out", "right")
    assert done.exit_code == 0
    assert "SME off → SME2 512" in done.stdout.splitlines()[0]


def test_the_latency_table_has_what_was_measured(world: World) -> None:
    """Promise 13: load is program and method, memory is the largest peak."""
    world.spec = RunSpec(noise=Noise(call=0.0), capabilities=Capabilities(sme="off"))
    done = world("profile", "m.pte", "--blocks", "5", "--operator-launches", "1", "--full")
    assert done.exit_code == 0, done.stderr
    (target,) = world.targets
    assert len(target.requests) >= 6
    blocks = 5
    load_us = 1 + 90 + (blocks - 1) / 2
    assert row(done.stdout, "Load")[1] == f"{load_us:.1f} µs"
    assert row(done.stdout, "Peak memory")[1] == f"{4 + blocks - 1:.1f} MiB"
    execute_us = world.spec.execute_ns("off") / 1000
    assert row(done.stdout, f"Inference ({20 * blocks} samples)")[1] == f"{execute_us:.0f} µs"
    assert row(done.stdout, "First inference")[1] == f"{3 * execute_us / 1000:.2f} ms"


class Clock:
    """A clock on which waits of a second and more pass at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.slept_s: list[float] = []
        self._sleep, self._now = time.sleep, time.monotonic
        patch.setattr(time, "sleep", self.sleep)
        patch.setattr(time, "monotonic", lambda: self._now() + sum(self.slept_s))

    def sleep(self, seconds: float) -> None:
        if seconds < 1:
            self._sleep(seconds)
        else:
            self.slept_s.append(seconds)


def test_launches_wait_for_each_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 15: cool_down_s before each launch but the first."""
    config = world.config({"name": "one"}, measurement={"cool_down_s": 7})
    clock = Clock(monkeypatch)
    assert world("run", config).exit_code == 0
    (target,) = world.targets
    assert clock.slept_s == [7] * (len(target.requests) - 1)


@pytest.mark.parametrize(
    ("temperatures_c", "longest_s", "waits"),
    [((60, 55, 49.9), 300, 2), ((49,), 300, 0), ((90,) * 100, 9, 5)],
    ids=["hot, then cool", "cool", "hot for ever"],
)
def test_a_launch_waits_until_the_device_is_cool(
    temperatures_c: tuple[float, ...],
    longest_s: float,
    waits: int,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Promise 16: max_start_temperature_c, for max_wait_s at most."""
    limits = {"max_start_temperature_c": 50, "max_wait_s": longest_s, "blocks": 1}
    config = world.config({"name": "one"}, measurement=limits)
    clock = Clock(monkeypatch)
    world.temperatures_c = temperatures_c
    first_wait: list[int] = []
    run = SimTarget.run

    def watched(self: SimTarget, request: Any) -> Any:  # noqa: ANN401
        first_wait.append(len(clock.slept_s))
        return run(self, request)

    monkeypatch.setattr(SimTarget, "run", watched)
    assert world("run", config).exit_code == 0
    assert first_wait[0] == waits


def test_the_runner_is_kept_on_its_cpus(exports: Exports, tmp_path: Path) -> None:
    """Promise 19: as the kernel sees it, from within the launch."""
    model = exports.get(ExportRequest("toy_cnn", "fp32")).pte
    note = tmp_path / "note.sh"
    note.write_text(
        "#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status "
        f'>> {shlex.quote(str(tmp_path))}/cpus\nexec "$@"\n'
    )
    note.chmod(0o755)
    experiment = {"name": "one", "cpu_affinity": "0", "launcher": [str(note)]}
    document = {
        "model": str(model),
        "output_root": "run",
        "experiments": [experiment],
        "measurement": {"blocks": 2, "min_seconds": 0.001, "etdump_runs": 1},
    }
    (tmp_path / "c.json").write_text(json.dumps(document))
    done = etprof(tmp_path, "run", "c.json")
    assert done.exit_code == 0, done.stderr
    seen = [line.split()[1] for line in (tmp_path / "cpus").read_text().splitlines()]
    assert seen == ["0"] * (1 + 2 + USUAL_OPERATOR_LAUNCHES), "outputs, timing, operators"


def test_the_seed_of_the_config_reaches_the_runner(world: World) -> None:
    """Promise 20, and threads, warm-up, affinity and arguments with it."""
    config = world.config(
        {
            "name": "one", "threads": 3, "warmup": 4, "runs": 6, "cpu_affinity": "0,2",
            "extra_args": ["--x=1"], "launcher": ["nice"], "sme": "off",
        },
        measurement={"seed": 41, "min_seconds": 0.5},
    )  # fmt: skip
    assert world("run", config).exit_code == 0
    (target,) = world.targets
    for request in target.requests:
        assert (request.seed, request.threads, request.warmup) == (41, 3, 4)
        assert (request.cpus, request.launcher, request.sme) == ((0, 2), ("nice",), "off")
        assert request.extra_arguments == ("--x=1",)
    timing = [request for request in target.requests if request.etdump is None]
    assert {(request.iterations, request.min_seconds) for request in timing} == {(6, 0.5)}


def test_a_run_stays_valid_whatever_reads_it(world: World) -> None:
    """Promise 23: run, resume, report, analyze, validate."""
    config = world.config({"name": "one"}, {"name": "off", "sme": "off"})
    for words in (
        ("run", config),
        ("run", config, "--resume"),
        ("report", "run", "--format", "html,md,csv,json"),
        ("analyze", "run"),
        ("run", config, "--resume"),
    ):
        assert world(*words).exit_code == 0, words
    done = world("validate", "run")
    assert done.exit_code == 0, done.stdout


CHANGED: dict[str, dict[str, Any]] = {
    "threads": {"threads": 2},
    "launcher": {"launcher": ["nice"]},
    "iterations": {"runs": 7},
    "warmup": {"warmup": 3},
    "cpus": {"cpu_affinity": "0"},
    "extra_arguments": {"extra_args": ["--x"]},
    "sme": {"sme": "off"},
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_run_of_something_else_is_not_resumed(name: str, world: World) -> None:
    """Promise 22: what is measured otherwise is named, and nothing is launched."""
    plain = {"name": "one_t1", "threads": 1}
    assert world("run", world.config(plain)).exit_code == 0
    done = world("run", world.config({**plain, **CHANGED[name]}), "--resume")
    assert done.exit_code == 2
    # Another number of threads makes another name, unless the config gives it.
    assert f": {name} was " in done.stderr
    assert world.targets[-1].requests == []


def test_a_run_with_other_inputs_is_not_resumed(world: World) -> None:
    """Promise 22: the second input counts as the first does."""
    files = [world.folder / f"{number}.bin" for number in range(2)]
    for path in files:
        path.write_bytes(b"1234")
    config = world.config({"name": "one"}, inputs=[path.name for path in files])
    assert world("run", config).exit_code == 0
    assert world("run", config, "--resume").exit_code == 0
    files[1].write_bytes(b"5678")
    done = world("run", config, "--resume")
    assert (done.exit_code, "inputs: they have changed" in done.stderr) == (2, True)
    assert world.targets[-1].requests == []


@pytest.mark.parametrize(("width", "blocks"), [(0.012, 6), (0.009, 12)])
def test_measuring_stops_at_the_precision_that_was_asked_for(
    width: float, blocks: int, world: World
) -> None:
    """Promise 17: launches of 541 µs ± 1 %, so ± 1 % is known and no more."""
    launches: list[int] = []

    def latencies(_: SimTarget, mode: str, number: int, iterations: int) -> list[int]:
        launches.append(number)
        return [round(world.spec.execute_ns(mode) * (1.01 if number % 2 else 0.99))] * iterations

    config = world.config(
        {"name": "one", "sme": "off"},
        measurement={"blocks": 12, "target_half_width": width, "etdump_runs": 2},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimTarget, "_latencies", latencies)
        assert world("run", config).exit_code == 0
    (target,) = world.targets
    assert len([each for each in target.requests if each.etdump is None]) == blocks


@pytest.mark.parametrize(("margin", "verdict"), [(0.5, False), (0.001, True)])
def test_the_margin_of_the_config_decides_what_matters(
    margin: float, verdict: bool, world: World
) -> None:
    """Promise 28: `analysis.margin`, and the pairs that `compare_pairs` names."""
    slower = [*world.spec.operators["off"]]
    slower[1] = type(slower[1])(slower[1].label, 420)
    world.spec = RunSpec({**world.spec.operators, "sme1": slower}, noise=Noise(call=0.001))
    config = world.config(
        *({"name": name, "sme": mode} for name, mode in (("a", "off"), ("b", "sme1"))),
        {"name": "c", "sme": "sme2"},
        measurement={"blocks": 8},
        analysis={"margin": margin, "compare_pairs": [{"baseline": "a", "candidate": "b"}]},
    )
    done = world("run", config, "--json")
    assert done.exit_code == 0, done.stderr
    (compared,) = json.loads(done.stdout)["comparisons"]
    assert [compared[side]["experiment"] for side in ("baseline", "candidate")] == ["a", "b"]
    assert (compared["latency"]["verdict"] == "slower") is verdict


def test_declared_pairs_are_compared_as_they_are_and_all_named(world: World) -> None:
    """M3-3: `compare RUN:t1 RUN:t2` was refused; of two pairs the short answer showed one."""
    pairs = [{"baseline": "one", "candidate": name} for name in ("two", "fast")]
    config = world.config(
        {"name": "one", "sme": "off", "threads": [1]},
        {"name": "two", "sme": "off", "threads": [2]},
        {"name": "fast", "sme": "sme2", "threads": [1]},
        measurement={"blocks": 6},
        analysis={"compare_pairs": pairs},
    )
    done = world("run", config)
    assert done.exit_code == 0, done.stderr
    for name in ("two", "fast"):
        (line,) = [text for text in done.stdout.splitlines() if f"one → {name}: " in text]
        assert "×" in line
    assert world("compare", "run:one", "run:two").exit_code == 0
    assert world("compare", "run:two", "run:one").exit_code == 0
    refused = world("compare", "run:two", "run:fast")
    assert refused.exit_code == 2
    assert "--allow threads" in refused.stderr


def test_a_phone_profiles_to_the_end(world: World) -> None:
    """Promise 58, T4: kernels need a runner that counts; without one, times are there all the same."""
    world.spec = RunSpec(capabilities=Capabilities(platform="android", counts=False))
    done = world("profile", "m.pte", "--target", "android", "--blocks", "3", "--full")
    assert done.exit_code == 0, done.stderr
    for mode in ("off", "sme1", "sme2"):
        timed = [line for line in done.stdout.splitlines() if "Inference (60 samples)" in line]
        assert any(f"android_{mode} " in line and "µs" in line for line in timed)
