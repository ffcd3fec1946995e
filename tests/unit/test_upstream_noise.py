"""What PyTorch's own modules warn of is no news to a user; what the model does is."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from etprof.base.upstream_noise import quiet_upstream


class Weighted(nn.Module):
    """Assigns a tensor in each call, which is the model's own doing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 2
        return self.last + 1


@pytest.mark.parametrize(
    ("message", "is_kept"),
    [
        ("The tensor attributes self.g._flat_weights[0], self.g._flat_weights[1] were set", False),
        ("The tensor attribute self.gru._flat_weights[0] was assigned during export.", False),
        ("The tensor attribute self.last was assigned during export.", True),
    ],
)  # fmt: skip
def test_the_weights_of_a_gru_are_no_news(message: str, is_kept: bool) -> None:
    """A GRU's first export printed a paragraph on `register_buffer` with a path of Python's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet_upstream():
            warnings.warn(message, UserWarning, stacklevel=1)
    assert bool(caught) is is_kept


def test_a_tensor_that_the_model_assigns_is_told() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet_upstream():
            torch.export.export(Weighted(), (torch.ones(2),))
    assert any("self.last was assigned during export" in str(each.message) for each in caught)
