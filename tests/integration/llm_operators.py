"""Makes a small program whose attention is ExecuTorch's `llama::sdpa_with_kv_cache`.

usage: python -m tests.integration.llm_operators FOLDER

A process of its own, for the operators register themselves in PyTorch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.llm.custom_ops import custom_ops

assert custom_ops is not None  # imported for what it registers
_ROOM, _HEADS, _WIDTH = 16, 2, 8


class Attention(torch.nn.Module):
    """One token's attention with a cache, and a linear layer that XNNPACK takes."""

    def __init__(self) -> None:
        """Starts with a cache of zeros."""
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, _ROOM, _HEADS, _WIDTH))
        self.out = torch.nn.Linear(_HEADS * _WIDTH, _HEADS * _WIDTH)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Scores of `token` (1, 1, heads, width) at `position` (1)."""
        start = position[0].item()
        torch.ops.aten.sym_constrain_range_for_size(start, min=0, max=_ROOM - 1)
        attended = torch.ops.llama.sdpa_with_kv_cache(
            token, token, token, self.keys, self.values, start, 1, None, 0.0, True, None
        )
        scores: torch.Tensor = self.out(attended.reshape(1, 1, _HEADS * _WIDTH))
        return scores


def main(folder: Path) -> None:
    """Writes `sdpa.pte`, its inputs and the output of PyTorch."""
    torch.manual_seed(0)
    network, inputs = Attention().eval(), (torch.randn(1, 1, _HEADS, _WIDTH), torch.tensor([0]))
    edge = to_edge_transform_and_lower(
        torch.export.export(network, inputs),
        partitioner=[XnnpackPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    (folder / "sdpa.pte").write_bytes(edge.to_executorch().buffer)
    with torch.no_grad():
        expected = network(*inputs)
    named = {"token": inputs[0], "position": inputs[1], "expected": expected}
    for name, value in named.items():
        (folder / f"{name}.bin").write_bytes(value.numpy().tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
