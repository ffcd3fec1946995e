"""Launches are ordered so that drift cannot favour an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from etprof.base.errors import UsageError
from etprof.measuring.plan import Experiment, Launch, Settings, plan
from tests.fake_target import FakeTarget

ON, OFF = Experiment(name="on", sme="sme2"), Experiment(name="off", sme="off")
TRACE = Experiment(name="trace", mode="kernels")


class Counting(FakeTarget):
    """Has a runner that counts."""

    def can_count(self) -> bool:
        return True


def purposes(experiments: list[Experiment], **settings: bool) -> list[tuple[str, str]]:
    passes = plan(experiments, Settings(**settings), Counting()).passes
    return [(launch.experiment.name, launch.purpose) for launch in passes]


def timing(experiments: list[Experiment], blocks: int, seed: int) -> list[Launch]:
    planned = plan(experiments, Settings(blocks=blocks, seed=seed), Counting())
    return [launch for pair in planned.timing for launch in pair]


def test_every_experiment_gets_every_block_once() -> None:
    launches = timing([ON, OFF], 7, 1)
    assert sorted((launch.experiment.name, launch.block) for launch in launches) == [
        (name, block) for name in ("off", "on") for block in range(7)
    ]


def test_pairs_of_blocks_are_balanced() -> None:
    for seed in range(20):
        names = [launch.experiment.name for launch in timing([ON, OFF], 8, seed)]
        for start in range(0, len(names), 4):
            pair = names[start : start + 4]
            assert pair == pair[::-1]
            assert pair[0] != pair[1]


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
    emulator = Counting()
    emulator.platform = "emulator"
    planned = plan([ON, OFF], Settings(blocks=7), emulator)
    assert not planned.timing
    assert [launch.purpose for launch in planned.launches] == ["operators", "kernels"] * 2
    assert planned.notes == ("blocks: without effect, for emulator proves no times",)


def test_without_a_runner_that_counts_the_plan_says_how_to_get_one() -> None:
    """T4: a phone's profile ended in an error after everything was measured."""
    phone = FakeTarget()
    phone.platform = "android"
    planned = plan([ON], Settings(), phone)
    assert [launch.purpose for launch in planned.passes] == ["operators"]
    (note,) = planned.notes
    assert "grade B" in note
    assert "--trace-runner" in note
    assert plan([OFF], Settings(), phone).notes == ()
    for asked in (TRACE, ON):
        with pytest.raises(UsageError, match="--trace-runner"):
            plan([asked], Settings(kernels=True), phone)


def test_a_pair_of_blocks_is_one_piece() -> None:
    """T7: the budget was looked at before every block, so it could cut a pair in half."""
    planned = plan([ON, OFF, TRACE], Settings(blocks=5), Counting())
    assert [[launch.block for launch in pair] for pair in planned.timing] == [
        [0, 0, 1, 1], [2, 2, 3, 3], [4, 4],
    ]  # fmt: skip


def test_launches_are_named_for_people() -> None:
    assert Launch(ON, "timing", 2).text == "on: block 3"
    assert Launch(ON, "operators").text == "on: operator split"
