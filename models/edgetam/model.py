"""EdgeTAM's image encoder (Zhou et al., 2025), from the authors' own repository.

An example of taking in a model that returns a dictionary and is built from a Hydra configuration:
the wrapper builds it, calls the one method that is wanted and returns a tuple of tensors.
"""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase

from ..images import make_image, make_images


class ImageEncoder(nn.Module):
    """The backbone and the neck; the tracker's other parts are left behind."""

    def __init__(self, tracker: nn.Module) -> None:
        super().__init__()
        self.tracker = tracker

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Maps images of [N, 3, 1024, 1024] to features at three scales."""
        features: dict[str, list[torch.Tensor]] = self.tracker.forward_image(image)  # type: ignore[operator]
        return tuple(features["backbone_fpn"])


class EdgeTAMModel(EagerModelBase):
    """Encodes one frame of 1024x1024."""

    requirements = ("git+https://github.com/facebookresearch/EdgeTAM", "hydra-core", "timm")

    def get_eager_model(self) -> nn.Module:
        """Returns the encoder with random weights."""
        from sam2.build_sam import build_sam2

        return ImageEncoder(build_sam2("configs/edgetam.yaml", ckpt_path=None, device="cpu"))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one normalised frame."""
        return (make_image(1024),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns two frames; each takes seconds."""
        return make_images(1024, 2)
