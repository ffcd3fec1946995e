"""ResNet-18 after He et al., "Deep Residual Learning for Image Recognition" (2015), table 1.

The names in the state dict are torchvision's, so its checkpoints load with `--weights`.
"""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase

from ..batch_norms import settle_batch_norms
from ..images import make_image, make_images


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        result: torch.Tensor = self.relu(self.bn2(self.conv2(y)) + shortcut)
        return result


def _make_layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))


class ResNet18(nn.Module):
    """Eighteen layers: 11,689,512 parameters."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _make_layer(64, 64, 1)
        self.layer2 = _make_layer(64, 128, 2)
        self.layer3 = _make_layer(128, 256, 2)
        self.layer4 = _make_layer(256, 512, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, H, W] to scores of [N, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: torch.Tensor = self.fc(self.avgpool(x).flatten(1))
        return scores


class ResNet18Model(EagerModelBase):
    """Classifies one image of 224x224."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return settle_batch_norms(ResNet18(), make_images(224, 2))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised image."""
        return (make_image(224),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns eight images."""
        return make_images(224, 8)
