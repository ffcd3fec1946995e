"""Launches are ordered so that drift cannot favour an experiment."""

from __future__ import annotations

from etprof.measuring.plan import Experiment, Launch, Settings, plan_passes, plan_timing

ON, OFF = Experiment(name="on", sme="sme2"), Experiment(name="off", sme="off")
TRACE = Experiment(name="trace", mode="kernel_trace")


def timing(experiments: list[Experiment], blocks: int, seed: int) -> list[Launch]:
    return plan_timing(experiments, Settings(blocks=blocks, seed=seed))


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
    assert [launch.identity for launch in plan_passes([ON, TRACE], Settings())] == [
        ("on", "etdump", None),
        ("trace", "kernel_trace", None),
    ]


def test_an_evidence_pass_can_be_added_to_timed_experiments() -> None:
    passes = plan_passes([ON], Settings(kernel_trace=True))
    assert [launch.purpose for launch in passes] == ["etdump", "kernel_trace"]


def test_launches_are_named_for_people() -> None:
    assert Launch(ON, "timing", 2).text == "on: block 3"
    assert Launch(ON, "etdump").text == "on: operator split"
