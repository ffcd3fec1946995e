"""Launches are ordered so that drift cannot favour an experiment."""

from __future__ import annotations

from etprof.blocks import Experiment, plan_launches

ON, OFF = Experiment("on", "sme2"), Experiment("off", "off")


def test_every_experiment_gets_every_block_once() -> None:
    launches = plan_launches([ON, OFF], 7, seed=1)
    assert sorted((launch.experiment.name, launch.block) for launch in launches) == [
        (name, block) for name in ("off", "on") for block in range(7)
    ]


def test_pairs_of_blocks_are_balanced() -> None:
    for seed in range(20):
        names = [launch.experiment.name for launch in plan_launches([ON, OFF], 8, seed)]
        for start in range(0, len(names), 4):
            pair = names[start : start + 4]
            assert pair == pair[::-1]
            assert pair[0] != pair[1]


def test_the_order_depends_on_the_seed_alone() -> None:
    orders = [tuple(x.experiment.name for x in plan_launches([ON, OFF], 8, s)) for s in range(30)]
    assert plan_launches([ON, OFF], 8, 3) == plan_launches([ON, OFF], 8, 3)
    assert len(set(orders)) > 5
