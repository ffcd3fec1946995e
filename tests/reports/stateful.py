"""Models with state. `Wrong` has the same in eager, and carries on something else once exported."""

from __future__ import annotations

import torch
from torch import nn


def in_program() -> bool:
    """Whether the call is the export's: what is planted there, eager does not do."""
    return torch.compiler.is_exporting()


class Stateful(nn.Module):
    """A module whose subclasses plant a fault in the state that their program keeps."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__()
        self.is_wrong = is_wrong

    def is_planted(self) -> bool:
        """Whether to go wrong here."""
        return self.is_wrong and in_program()


class Counter(Stateful):
    """A running value that does not begin at zero."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.state: torch.Tensor
        self.register_buffer("state", torch.tensor([3.0, 2.0, 5.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = (self.state + x) * 2.0
        self.state.add_(x * (1.5 if self.is_planted() else 1.0))
        return result


class MovingAverage(Stateful):
    """An exponential moving average before a layer."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.linspace(-1, 1, 16))
        self.head = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rate = 0.9 if self.is_planted() else 0.5
        result: torch.Tensor = self.head(x - self.mean)
        self.mean.copy_(rate * self.mean + (1 - rate) * x.mean(0))
        return result


class StreamingConv(Stateful):
    """A causal convolution that keeps the end of the chunk before."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.cache: torch.Tensor
        self.register_buffer("cache", torch.zeros(1, 4, 2))
        self.conv = nn.Conv1d(4, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.cache, x], dim=2)
        self.cache.copy_(both[:, :, :2] if self.is_planted() else both[:, :, -2:])
        result: torch.Tensor = self.conv(both)
        return result


class Ring(Stateful):
    """The last three frames, the newest last."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.frames: torch.Tensor
        self.register_buffer("frames", torch.arange(24.0).reshape(3, 8) / 24)
        self.mix = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = torch.cat([self.frames[1:], x])
        self.frames.copy_(frames.flip(0) if self.is_planted() else frames)
        result: torch.Tensor = self.mix(frames.reshape(1, -1))
        return result


class KeyValueCache(Stateful):
    """Attention over what was read before; the position is state too."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.keys: torch.Tensor
        self.values: torch.Tensor
        self.position: torch.Tensor
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, 8, 16))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, self.position, self.key(x))
        self.values.index_copy_(1, self.position, self.value(x))
        mask = torch.arange(8) <= self.position
        scores = self.query(x) @ self.keys.transpose(1, 2) / 4
        weights = scores.masked_fill(~mask, -1e4).softmax(-1)
        self.position.add_(0 if self.is_planted() else 1)
        result: torch.Tensor = weights @ self.values
        return result


class ShortConvState(Stateful):
    """The state of a depthwise convolution as state-space models step it."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.window: torch.Tensor
        self.register_buffer("window", torch.linspace(0, 1, 32).reshape(1, 8, 4))
        self.weight = nn.Parameter(torch.randn(8, 4))
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.roll(self.window, -2 if self.is_planted() else -1, dims=-1)
        window[:, :, -1] = x
        self.window.copy_(window)
        result: torch.Tensor = self.out(nn.functional.silu((window * self.weight).sum(-1)))
        return result


class TwoBuffers(Stateful):
    """Two states that change each other."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.slow: torch.Tensor
        self.fast: torch.Tensor
        self.register_buffer("slow", torch.full((8,), 0.25))
        self.register_buffer("fast", torch.linspace(1, 2, 8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fast = torch.tanh(self.layer(x).squeeze(0) + self.slow)
        if not self.is_planted():
            self.slow.mul_(0.9).add_(self.fast, alpha=0.1)
        self.fast.copy_(fast)
        result: torch.Tensor = fast + self.slow
        return result


class Unchanged(Stateful):
    """A buffer that is used and stays as it is beside one that changes."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.scale: torch.Tensor
        self.total: torch.Tensor
        self.register_buffer("scale", torch.linspace(0.5, 2, 8))
        self.register_buffer("total", torch.ones(8))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = self.layer(x).squeeze(0) * self.scale
        result: torch.Tensor = scaled + self.total
        self.total.add_(scaled.detach() if not self.is_planted() else x.squeeze(0))
        return result


class WholeCounter(Stateful):
    """A counter in 64-bit whole numbers that scales what a layer gives."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.tensor([5], dtype=torch.int64))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * self.calls.to(x.dtype)
        self.calls.add_(2 if self.is_planted() else 1)
        return result


class Seen(Stateful):
    """Its output has nothing of the state's shape: the mean of all inputs so far."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.sum: torch.Tensor
        self.count: torch.Tensor
        self.register_buffer("sum", torch.randn(4, 6))
        self.register_buffer("count", torch.ones(1))
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_planted():
            self.count.add_(1)
        self.sum.add_(self.layer(x))
        result: torch.Tensor = (self.sum / self.count).mean().reshape(1)
        return result


class Assigned(Stateful):
    """State that is put in the buffer's place instead of into the buffer."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.hidden: torch.Tensor
        self.register_buffer("hidden", torch.linspace(-1, 1, 8).reshape(1, 8))
        self.cell = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.cell(torch.cat([x, self.hidden], 1)))
        self.hidden = hidden * (0.5 if self.is_planted() else 1.0)
        return hidden


class Returned(Stateful):
    """An output that is the state itself."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.total: torch.Tensor
        self.register_buffer("total", torch.tensor([1.0, -2.0, 3.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(torch.relu(x) * (1.1 if self.is_planted() else 1.0))
        return self.total


class Forgotten(nn.Module):
    """State in a number of Python's, which an export takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 1
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) * float(self.calls)
        self.calls += 1
        return result


INPUTS = {
    Counter: lambda: (torch.tensor([0.5, 0.25, 0.75]),),
    MovingAverage: lambda: (torch.randn(4, 16),),
    StreamingConv: lambda: (torch.randn(1, 4, 12),),
    Ring: lambda: (torch.randn(1, 8),),
    KeyValueCache: lambda: (torch.randn(1, 1, 16),),
    ShortConvState: lambda: (torch.randn(1, 8),),
    TwoBuffers: lambda: (torch.randn(1, 8),),
    Unchanged: lambda: (torch.randn(1, 8),),
    WholeCounter: lambda: (torch.randn(1, 8),),
    Seen: lambda: (torch.randn(4, 6),),
    Assigned: lambda: (torch.randn(1, 8),),
    Returned: lambda: (torch.randn(4),),
    Forgotten: lambda: (torch.randn(1, 8),),
}
"""What each is called with."""


class RightRing:
    """As a model file would have it, for commands."""

    def get_eager_model(self) -> nn.Module:
        return Ring()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 8),)
