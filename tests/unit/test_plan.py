"""Launches are ordered so that drift cannot favour an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import UsageError
from etprof.config import Config
from etprof.measuring.plan import (
    Experiment,
    Launch,
    Settings,
    configured_experiments,
    configured_settings,
    configured_target,
    plan,
    planned_target,
    repetitions,
)
from etprof.targets.registry import TARGETS, kind_of
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from etprof.run.manifest import Purpose

ON, OFF = Experiment(name="on", sme="sme2"), Experiment(name="off", sme="off")
TRACE = Experiment(name="trace", mode="kernels")


def counting() -> SimTarget:
    """A machine with a runner that counts."""
    return SimTarget(plain(counts=True))


def purposes(experiments: list[Experiment], **settings: bool) -> list[tuple[str, str]]:
    launches = plan(experiments, Settings(operator_launches=1, **settings), counting()).launches
    found = [(each.experiment.name, each.purpose) for each in launches]
    return [each for each in found if each[1] != "timing"]


def timing(experiments: list[Experiment], blocks: int, seed: int) -> list[Launch]:
    planned = plan(experiments, Settings(blocks=blocks, seed=seed), counting())
    return [launch for pair in planned.timing for launch in pair]


def test_every_experiment_gets_every_block_once() -> None:
    launches = timing([ON, OFF], 7, 1)
    assert sorted((launch.experiment.name, launch.block) for launch in launches) == [
        (name, block) for name in ("off", "on") for block in range(7)
    ]


def first_in(blocks: int, seed: int) -> list[str]:
    """Who comes first in each block."""
    names = [launch.experiment.name for launch in timing([ON, OFF], blocks, seed)]
    return names[::2]


def test_every_block_is_drawn_for_itself() -> None:
    """N8: the second block of a pair was the first reversed, so a period of 4 could follow."""
    orders = [first_in(6, seed) for seed in range(600)]
    assert len({tuple(order) for order in orders}) == 2**6 - 2
    repeated = sum(order[i] == order[i + 1] for order in orders for i in range(5))
    assert 0.4 < repeated / 3000 < 0.55


def test_the_whole_order_is_balanced() -> None:
    """No experiment comes first far too often; a few orders in a hundred are drawn again."""
    for blocks in (6, 10, 40):
        firsts = [first_in(blocks, seed).count(ON.name) for seed in range(150)]
        assert max(abs(2 * first - blocks) for first in firsts) <= 2 * blocks**0.5


def test_the_order_depends_on_the_seed_alone() -> None:
    orders = [tuple(x.experiment.name for x in timing([ON, OFF], 8, s)) for s in range(30)]
    assert timing([ON, OFF], 8, 3) == timing([ON, OFF], 8, 3)
    assert len(set(orders)) > 5


def test_evidence_is_never_timed() -> None:
    assert timing([TRACE], 5, 0) == []
    assert purposes([OFF, TRACE]) == [("off", "operators"), ("trace", "kernels")]


def test_kernels_are_counted_where_sme_is_measured_or_as_asked() -> None:
    """T6: run, profile and bench had a policy each."""
    both = [("on", "operators"), ("on", "kernels")]
    assert purposes([ON]) == both
    assert purposes([OFF]) == [("off", "operators")]
    assert purposes([ON], kernels=False) == [("on", "operators")]
    assert purposes([OFF], kernels=True) == [("off", "operators"), ("off", "kernels")]
    own = ON.model_copy(update={"runner": Path("/own/runner")})
    assert purposes([own]) == [("on", "operators")]


def test_nothing_is_timed_where_times_mean_nothing() -> None:
    """T6: `run` timed ten blocks in the emulator, `bench` one, `profile` none."""
    emulator = counting()
    emulator.platform = "emulator"
    planned = plan([ON, OFF], Settings(blocks=7), emulator)
    assert not planned.timing
    assert [launch.purpose for launch in planned.launches] == [
        *["operators"] * 2, *["kernels"] * 2,
    ]  # fmt: skip
    assert planned.notes == ("blocks: without effect, for emulator proves no times",)


def test_without_a_runner_that_counts_the_plan_says_how_to_get_one() -> None:
    """T4: a phone's profile ended in an error after everything was measured."""
    phone = SimTarget(plain())
    phone.platform = "android"
    planned = plan([ON], Settings(), phone)
    assert {launch.purpose for launch in planned.launches} == {"timing", "operators"}
    (note,) = planned.notes
    assert "grade B" in note
    assert "--trace-runner" in note
    assert plan([OFF], Settings(), phone).notes == ()
    for asked in (TRACE, ON):
        with pytest.raises(UsageError, match="--trace-runner"):
            plan([asked], Settings(kernels=True), phone)


def test_who_cannot_be_counted_is_told_how_to_be() -> None:
    """A-D22: an own runner was not counted without a word; who has no SME was told of counts."""
    own = ON.model_copy(update={"runner": Path("/own/runner")})
    (note,) = plan([own, OFF], Settings(), counting()).notes
    assert note.startswith("on: ")
    assert "target.trace_runner" in note
    assert plan([own], Settings(kernels=False), counting()).notes == ()
    # Linux says which modes its CPU has: `auto` stands where it has none.
    assert plan([Experiment(name="auto")], Settings(), SimTarget(plain())).notes == ()
    phone = SimTarget(plain())
    phone.platform = "android"
    assert len(plan([Experiment(name="auto")], Settings(), phone).notes) == 1


@pytest.mark.parametrize("kind", [kind.name for kind in TARGETS])
def test_a_dry_run_is_of_the_kind_that_the_config_names(tmp_path: Path, kind: str) -> None:
    """A-D21: the plan of a Mac's config, shown on Linux, was Linux's."""
    config = configured(tmp_path, target=kind)
    assert planned_target(config).platform == kind


def configured(folder: Path, **fields: object) -> Config:
    (folder / "m.pte").write_bytes(b"program")
    given = {"model": folder / "m.pte", "output_root": folder / "run"}
    return Config.model_validate({**given, "experiments": [{"name": "a"}], **fields})


@pytest.mark.parametrize("kind", ["linux", "android", "emulator"])
def test_a_runner_that_is_not_there_is_refused(tmp_path: Path, kind: str) -> None:
    """A-D9: a trace runner that is not there was told after everything had been measured."""
    lost = tmp_path / "lost"
    way_out = kind_of(kind).runner_hint
    with pytest.raises(UsageError, match=r"target\.trace_runner: there is no runner at") as caught:
        configured_target(configured(tmp_path, target={"kind": kind, "trace_runner": lost}))
    assert str(caught.value).endswith(way_out)
    config = configured(tmp_path, target=kind, experiments=[{"name": "a", "runner": lost}])
    with pytest.raises(UsageError, match="experiment 'a': there is no runner at"):
        configured_target(config)


def test_a_launch_that_counts_is_short() -> None:
    """A-D12: on timed targets it ran 20 + 10 inferences under counters, formerly 2 + 0."""
    settings = Settings(operator_iterations=7, operator_launches=1)

    def of(experiment: Experiment, purpose: Purpose, *, is_timed: bool = True) -> tuple[int, int]:
        return repetitions(Launch(experiment, purpose), settings, is_timed=is_timed)

    timed = ON.model_copy(update={"iterations": 20, "warmup": 10})
    assert of(timed, "timing") == (20, 10)
    assert of(timed, "operators") == (7, 10)
    assert of(timed, "kernels") == (2, 0)
    assert of(timed, "outputs") == (1, 0)
    assert of(timed, "kernels", is_timed=False) == (2, 0)
    assert of(timed, "operators", is_timed=False) == (7, 0)
    assert of(TRACE.model_copy(update={"iterations": 5}), "kernels") == (5, 10)


@pytest.mark.parametrize("kind", [kind.name for kind in TARGETS])
def test_how_often_is_timed_is_no_measure_for_what_is_not(tmp_path: Path, kind: str) -> None:
    """A-D10d: `run` and `profile` made as many emulated inferences as were asked, `bench` two."""
    is_timed = kind_of(kind).policy.proves_times
    experiments = [
        {"name": "plain"},
        {"name": "asked", "runs": 9, "warmup": 4},
        {"name": "counted", "mode": "kernels", "runs": 9},
    ]
    target = counting()
    target.platform = kind
    config = configured(tmp_path, target=kind, experiments=experiments)
    planned = plan(configured_experiments(config), configured_settings(config), target)
    found = {
        (launch.experiment.name, launch.purpose): repetitions(
            launch, planned.settings, is_timed=is_timed
        )
        for launch in planned.launches
    }
    assert {each for (_, purpose), each in found.items() if purpose == "outputs"} <= {(1, 0)}
    assert found.get(("counted", "kernels"), (9, 0)) == (9, 0)
    if is_timed:
        assert found["asked", "timing"] == (9, 4)
        assert "iterations" not in str(planned.notes)
    else:
        assert found["asked", "operators"] == found["plain", "operators"] == (1, 0)
        assert found["asked", "kernels"] == found["plain", "kernels"] == (2, 0)
        assert "iterations, warmup: without effect, for emulator proves no times" in planned.notes


def test_operator_launches_are_replicated_and_interleaved() -> None:
    """N2: one launch with tracer after all timing had no spread, and another state of the machine."""
    settings = Settings(blocks=6, operator_launches=5, operator_iterations=12)
    planned = plan([ON, OFF], settings, counting())
    assert [{each.block for each in piece} for piece in planned.splits] == [
        {number} for number in range(5)
    ]
    names = [[each.experiment.name for each in piece] for piece in planned.splits]
    assert {tuple(sorted(each)) for each in names} == {("off", "on")}
    assert len({tuple(each) for each in names}) == 2, "each round has an order of its own"
    # AND timing blocks stand between them
    kinds = [piece[0].purpose for piece in planned.in_turn]
    assert [kinds[: i + 1].count("operators") for i, kind in enumerate(kinds) if kind == "timing"] == [
        0, 0, 1, 2, 3, 4,
    ]  # fmt: skip
    # AND where a round and a block are due at the same moment, the round comes first
    even = plan([ON, OFF], Settings(blocks=4, operator_launches=2), counting())
    assert [piece[0].purpose for piece in even.in_turn] == [
        "timing", "timing", "operators", "timing", "timing", "operators",
    ]  # fmt: skip
    assert planned.launches[-1].purpose == "kernels"
    # AND the inferences are shared out among them
    assert repetitions(Launch(ON, "operators", 1), settings, is_timed=True)[0] == 3
    emulator = counting()
    emulator.platform = "emulator"
    assert len(plan([ON, OFF], settings, emulator).splits) == 1
    assert repetitions(Launch(ON, "operators", 0), settings, is_timed=False)[0] == 12


@pytest.mark.parametrize("seed", range(20))
def test_no_side_comes_first_in_more_operator_rounds_than_another(seed: int) -> None:
    """N3-1: the first launch of a round is slower, and one side came first in four rounds of six."""
    settings = Settings(blocks=6, operator_launches=6, seed=seed)
    third = Experiment(name="third", sme="sme1")
    rounds = plan([ON, OFF, third], settings, counting()).splits
    places = [{each.experiment.name: i for i, each in enumerate(piece)} for piece in rounds]
    for one, other in (("on", "off"), ("on", "third"), ("off", "third")):
        assert sum(place[one] < place[other] for place in places) == 3


def test_operator_rounds_follow_the_seed() -> None:
    def orders(seed: int) -> list[list[str]]:
        settings = Settings(blocks=6, operator_launches=6, seed=seed)
        planned = plan([ON, OFF], settings, counting())
        return [[each.experiment.name for each in piece] for piece in planned.splits]

    assert orders(3) == orders(3)
    assert len({str(orders(seed)) for seed in range(8)}) > 1


def test_a_block_is_one_piece() -> None:
    """T7: the budget was looked at between launches of one block, so it could be cut."""
    planned = plan([ON, OFF, TRACE], Settings(blocks=5), counting())
    assert [[launch.block for launch in block] for block in planned.timing] == [
        [0, 0], [1, 1], [2, 2], [3, 3], [4, 4],
    ]  # fmt: skip


def test_launches_are_named_for_people() -> None:
    assert Launch(ON, "timing", 2).text == "on: timing block 3"
    assert Launch(ON, "operators").text == "on: per-operator breakdown"
