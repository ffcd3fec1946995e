"""Models of the zoo's forms with one part enlarged until it takes most of the time."""

from __future__ import annotations

from pathlib import Path

import torch
from models.batch_norms import settle_batch_norms
from models.decoder.model import Decoder, DecoderModel
from models.mobilenet_v2.model import ConvNormAct, InvertedResidual
from models.toy_cnn.model import ToyCNN, ToyCNNModel
from models.vit_tiny.model import ViTTiny, ViTTinyModel
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase


def marked(name: str) -> str:
    """Returns the name under which a class of this file can be exported."""
    return f"{Path(__file__)}:{name}"


class MarkedToyCNN(ToyCNNModel):
    """`stem` has a kernel of 31x31 and 97 % of the multiply-accumulates."""

    def get_eager_model(self) -> nn.Module:
        network = ToyCNN()
        network.stem = nn.Conv2d(3, 32, 31, stride=2, padding=15)
        return network


class MarkedMobileNet(EagerModelBase):
    """Seven of MobileNetV2's blocks; the fifth expands 48 times as much as the others: 88 %."""

    def get_eager_model(self) -> nn.Module:
        expansions = (2, 2, 2, 2, 96, 2, 2)
        blocks = [InvertedResidual(16, 16, 1, expansion) for expansion in expansions]
        network = nn.Sequential(ConvNormAct(3, 16, stride=2), *blocks)
        return settle_batch_norms(network, [self.get_example_inputs()])

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.randn(1, 3, 64, 64),)


class MarkedViT(ViTTinyModel):
    """ViT-Tiny with three layers, of which the second has an MLP 128 times as wide as its input."""

    def get_eager_model(self) -> nn.Module:
        network = ViTTiny(depth=3)
        network.set_submodule("blocks.1.mlp.fc1", nn.Linear(192, 128 * 192))
        network.set_submodule("blocks.1.mlp.fc2", nn.Linear(128 * 192, 192))
        return network


class MarkedDecoder(DecoderModel):
    """The decoder with sixteen times the feed-forward width in its second layer."""

    def get_eager_model(self) -> Decoder:
        network = super().get_eager_model()
        for name in ("w1", "w2", "w3"):
            shape = network.get_parameter(f"layers.1.{name}.weight").shape
            hidden, width = 16 * max(shape), min(shape)
            sizes = (hidden, width) if name == "w2" else (width, hidden)
            network.set_submodule(f"layers.1.{name}", nn.Linear(*sizes, bias=False))
        return network


class ShallowDecoder(DecoderModel):
    """The decoder with its first layer alone: half as long to export."""

    def get_eager_model(self) -> Decoder:
        network = super().get_eager_model()
        network.layers = network.layers[:1]
        return network
