"""A cache that several methods change is one in the program exactly where it is one in PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from etprof.export import lowering, upstream
from etprof.export.request import ExportOptions
from etprof.model_registry.eager_model import ExportMethod


class Remember(nn.Module):
    """Adds its input to what it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4))
        self.cache: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache += x
        return self.cache * 2


class Step(nn.Module):
    def __init__(self, inner: Remember) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubled: torch.Tensor = self.inner(x)
        return doubled


def arena_counts(first: Remember, second: Remember) -> list[int]:
    """Exports a method for each and returns how many arenas were planned for them."""
    modules = {"first": first, "second": second}
    methods = {name: ExportMethod(Step(each), (torch.ones(4),)) for name, each in modules.items()}
    shared = lowering.find_shared_buffers(methods)
    assert shared == ({"inner.cache"} if first is second else set())
    options = ExportOptions()
    with upstream.quiet_upstream():
        traced = {name: lowering.trace(name, each) for name, each in methods.items()}
        lowered = lowering.lower(traced, "portable", options, {"get_answer": 42})
        program = lowering.make_program(lowered.edge, options, shared)
    plans = {plan.name: plan for plan in program.executorch_program.execution_plan}
    assert "get_answer" in plans
    # The first size belongs to no arena: constants had it once.
    return [len(plans[name].non_const_buffer_sizes) - 1 for name in modules]


def test_only_the_same_tensor_is_shared() -> None:
    one = Remember()
    assert arena_counts(one, one) == [2, 2]
    assert arena_counts(Remember(), Remember()) == [1, 1]
