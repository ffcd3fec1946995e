"""Gives random networks the batch-norm statistics that training would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable


def settle_batch_norms(network: nn.Module, batches: Iterable[tuple[torch.Tensor]]) -> nn.Module:
    """Sets the running statistics of every batch norm to those of `batches`; returns `network`.

    With the default statistics a random network's signal fades from layer to layer, until its
    outputs depend on nothing but biases and no comparison of outputs would notice a wrong kernel.
    """
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the plain average over all batches
    network.train()
    with torch.no_grad():
        for batch in batches:
            network(*batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    network.eval()
    return network
