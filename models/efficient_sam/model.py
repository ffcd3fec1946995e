"""EfficientSAM's image encoder (Xiong et al., 2023), from the authors' own repository.

An example of taking in a model whose code is elsewhere: the package is imported when the model is
made, one part of it is cut out, and the image is scaled inside the model as its users scale it.
"""

from __future__ import annotations

import torch
from torch import nn

from etprof.model_registry.eager_model import EagerModelBase

from ..images import make_image, make_images


class ImageEncoder(nn.Module):
    """The encoder with the normalisation that `Sam.preprocess` does before it."""

    def __init__(self, sam: nn.Module) -> None:
        super().__init__()
        self.encoder = sam.get_submodule("image_encoder")
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.mean: torch.Tensor
        self.deviation: torch.Tensor

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Maps images of [N, 3, 1024, 1024] in 0 … 1 to embeddings of [N, 256, 64, 64]."""
        embedding: torch.Tensor = self.encoder((image - self.mean) / self.deviation)
        return embedding


class EfficientSAMModel(EagerModelBase):
    """Embeds one image of 1024x1024 with the smallest encoder (ViT-Tiny)."""

    requirements = ("git+https://github.com/yformer/EfficientSAM",)

    def get_eager_model(self) -> nn.Module:
        """Returns the encoder with random weights."""
        from efficient_sam.efficient_sam import build_efficient_sam

        return ImageEncoder(build_efficient_sam(encoder_patch_embed_dim=192, encoder_num_heads=3))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns one image, not normalised."""
        return (make_image(1024).sigmoid(),)

    def get_calibration_data(self) -> list[tuple[torch.Tensor]]:
        """Returns two images; each takes seconds."""
        return [(image.sigmoid(),) for (image,) in make_images(1024, 2)]
