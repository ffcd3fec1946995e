"""The smallest model that shows every kind of operator etprof tells apart."""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase


class ToyCNN(nn.Module):
    """A 3x3, a depthwise and a pointwise convolution, a pooling, a mean and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.pointwise = nn.Conv2d(32, 64, 1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, H, W] to scores of [N, 10]."""
        x = self.stem(image).relu()
        x = self.depthwise(x).relu()
        x = self.pool(self.pointwise(x).relu())
        # XNNPACK has no mean that drops the dimensions: this one stays outside the delegate.
        scores: torch.Tensor = self.head(x.mean((2, 3)))
        return scores


class ToyCNNModel(EagerModelBase):
    """Classifies images of 1x3x32x32 into ten classes."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return ToyCNN()

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised image."""
        return (torch.randn(1, 3, 32, 32),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns eight more of them."""
        return [(torch.randn(1, 3, 32, 32),) for _ in range(8)]
