"""Programs whose speed is the machine's own: large products, and streams of one value or of two.

`etprof calibrate --peaks` measures them. Each is one operator of the delegate, so that the whole
inference is it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from etprof.model_registry.eager_model import EagerModelBase

if TYPE_CHECKING:
    from etprof.model_registry.eager_model import Inputs


class _Product(EagerModelBase):
    """A product of two square matrices, the right one a weight."""

    side: int

    def get_eager_model(self) -> torch.nn.Module:
        """Returns a linear layer without bias."""
        return torch.nn.Linear(self.side, self.side, bias=False)

    def get_example_inputs(self) -> Inputs:
        """Returns as many rows as the weight has."""
        return (torch.randn(self.side, self.side),)


class Product256(_Product):
    """256 to the third multiply-accumulates."""

    side = 256


class Product512(_Product):
    """512 to the third multiply-accumulates."""

    side = 512


class Product1024(_Product):
    """1024 to the third multiply-accumulates."""

    side = 1024


class _Negative(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return -values


class _Stream(EagerModelBase):
    """Reads a tensor and writes another of the same size, with the sign changed."""

    count: int
    """Elements of four bytes."""

    def get_eager_model(self) -> torch.nn.Module:
        """Returns what changes signs."""
        return _Negative()

    def get_example_inputs(self) -> Inputs:
        """Returns what is read."""
        return (torch.randn(self.count),)


class Stream8K(_Stream):
    """1 024 elements: 8 KiB read and written."""

    count = 2**10


class Stream128K(_Stream):
    """128 KiB read and written."""

    count = 2**14


class Stream2M(_Stream):
    """2 MiB read and written."""

    count = 2**18


class Stream64M(_Stream):
    """64 MiB read and written, which is more than most caches hold."""

    count = 2**23


class _Addition(torch.nn.Module):
    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other


class _Sum(EagerModelBase):
    """Reads two tensors and writes a third of the same size: two reads for each write.

    Machines read and write at different rates, so this is no stream of one tensor.
    """

    count: int
    """Elements of four bytes."""

    def get_eager_model(self) -> torch.nn.Module:
        """Returns what adds."""
        return _Addition()

    def get_example_inputs(self) -> Inputs:
        """Returns what is added."""
        return torch.randn(self.count), torch.randn(self.count)


class Sum12K(_Sum):
    """1 024 elements: 12 KiB read and written."""

    count = 2**10


class Sum192K(_Sum):
    """192 KiB read and written."""

    count = 2**14


class Sum3M(_Sum):
    """3 MiB read and written."""

    count = 2**18


class Sum96M(_Sum):
    """96 MiB read and written."""

    count = 2**23
