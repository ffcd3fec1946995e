"""What of a planned arena lives at its fullest moment, and how much of that is listed."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from etprof.export.memory_plan import describe_plan


def planned(size: int, first: int | None, last: int, *, const: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        const=const, mem_id=1, mem_offset=8, allocated_memory=size, lifetime=[first, last]
    )


def graph_of(*specs: object) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    for index, spec in enumerate(specs):
        graph.placeholder(f"n{index}").meta["spec"] = spec
    return graph


def test_the_fullest_moment_is_the_first_of_its_size() -> None:
    shared = planned(30, 1, 2)
    graph = graph_of(
        planned(10, 0, 1), [shared, (planned(5, 2, 3),)], shared, planned(99, 0, 3, const=True),
        planned(77, None, 3),
    )  # fmt: skip
    plan = describe_plan(graph, [64])
    # Constants are no part of the arena, nor what nobody uses; what two nodes have counts once.
    assert (plan.arena_bytes, plan.unshared_bytes, plan.peak_live_bytes) == ((64,), 45, 40)
    assert plan.peak_node == "n1"
    told = [
        (each.node, each.size_bytes, each.first_use, each.last_use) for each in plan.tensors_at_peak
    ]
    assert told == [("n1", 30, 1, 2), ("n0", 10, 0, 1)]
    assert (plan.tensors_at_peak[0].arena, plan.tensors_at_peak[0].offset_bytes) == (1, 8)


def test_the_ten_largest_are_listed() -> None:
    plan = describe_plan(graph_of(*(planned(size, 0, 20) for size in range(1, 13))), [1])
    assert [each.size_bytes for each in plan.tensors_at_peak] == [*range(12, 2, -1)]
    empty = describe_plan(torch.fx.Graph(), [])
    assert (empty.peak_live_bytes, empty.peak_node, empty.tensors_at_peak) == (0, None, ())
