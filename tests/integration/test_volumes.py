"""Convolutions over volumes, as sums of those over images, are what PyTorch computes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from etprof.export.changes.volumes import flatten_volumes

if TYPE_CHECKING:
    from collections.abc import Callable

# Of torch.export itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Conv3d(2, 4, (2, 3, 1)),
    "strided and padded": lambda: nn.Conv3d(2, 4, 3, stride=(2, 1, 3), padding=(1, 0, 2)),
    "dilated groups without bias": lambda: nn.Conv3d(
        4, 6, (3, 2, 2), stride=(3, 2, 1), dilation=(2, 1, 2), groups=2, bias=False
    ),
    "of one depth": lambda: nn.Conv3d(2, 3, (1, 3, 3), padding=1),
    "transposed": lambda: nn.ConvTranspose3d(2, 4, (2, 3, 1)),
    "transposed, strided and padded": lambda: nn.ConvTranspose3d(
        2, 4, 3, stride=(3, 1, 2), padding=(2, 0, 1), output_padding=(1, 0, 1)
    ),
    "transposed, dilated groups without bias": lambda: nn.ConvTranspose3d(
        4, 6, (3, 2, 2), stride=(2, 2, 1), dilation=(2, 1, 3), groups=2, bias=False
    ),
}


def exported(layer: nn.Module) -> tuple[torch.export.ExportedProgram, torch.Tensor]:
    torch.manual_seed(0)
    channels: Any = layer.in_channels
    volume = torch.randn(2, channels, 7, 6, 8)
    return torch.export.export(layer.eval().requires_grad_(requires_grad=False), (volume,)), volume


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_sums_of_images_are_the_convolution_of_the_volume(name: str) -> None:
    layer = CONVOLUTIONS[name]()
    program, volume = exported(layer)
    flat = flatten_volumes(program)
    targets = {str(node.target) for node in flat.graph.nodes}
    assert not [target for target in targets if "conv3d" in target or "transpose3d" in target]
    torch.testing.assert_close(flat.module()(volume), layer(volume), rtol=1e-4, atol=1e-5)


def test_a_program_without_volumes_is_left_as_it_is() -> None:
    program = torch.export.export(nn.Conv2d(2, 3, 3).eval(), (torch.randn(1, 2, 5, 5),))
    assert flatten_volumes(program) is program


@pytest.mark.parametrize(("stride", "padding"), [*itertools.product((1, 2), (0, 1))])
def test_sizes_may_be_one_number_for_all_three(stride: int, padding: int) -> None:
    layer = nn.Conv3d(2, 3, 2, stride=stride, padding=padding)
    program, volume = exported(layer)
    torch.testing.assert_close(
        flatten_volumes(program).module()(volume), layer(volume), rtol=1e-4, atol=1e-5
    )
