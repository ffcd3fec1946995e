"""The model as it is."""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase


class Network(nn.Module):
    """Four equal convolutions, then a mean; `extra` more of them make it slower."""

    def __init__(self, extra: int = 0) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(32, 32, 3, padding=1) for _ in range(4 + extra)]
        self.layers = nn.Sequential(*convolutions)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps [N, 32, H, W] to [N, 32]."""
        scores: torch.Tensor = self.layers(image).mean((2, 3))
        return scores


class GateModel(EagerModelBase):
    """As it is."""

    extra = 0

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return Network(self.extra)

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one image."""
        return (torch.randn(1, 32, 32, 32),)
