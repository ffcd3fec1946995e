"""Runs ExecuTorch's own export of a language model, as a program of its own.

`python -m etprof.export_llm.child CONFIG.yaml` is `python -m executorch.extension.llm.export.export_llm
--config CONFIG.yaml`. With `PARAMS.json WEIGHTS` after it, weights of such a network are drawn first,
always with the same seed, and written to WEIGHTS: ExecuTorch would download those of most models.
A process of its own because the export changes the state of PyTorch and of its logs, and may be ended
by the system for its memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from etprof.base.json_input import read_json

SEED = 0


def draw_weights(params: Path, weights: Path) -> None:
    """Writes a checkpoint of the network that `params` describe."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    torch.manual_seed(SEED)
    network: torch.nn.Module = construct_transformer(
        ModelArgs(**read_json(params, way_out="give the network's sizes"))
    )
    torch.save(network.state_dict(), weights)


def read_tensors_alone() -> None:
    """Makes every `torch.load` of this process refuse what is more than tensors and containers.

    ExecuTorch's llama3_2_vision asks for whole pickles, whose loading runs what they name.
    """
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    # What tiktoken once read, by path alone, in a folder of everyone's.
    os.environ["TIKTOKEN_CACHE_DIR"] = ""


def main() -> None:
    """Reads the words of the command line and exports."""
    read_tensors_alone()
    _, config, *drawn = sys.argv
    if drawn:
        draw_weights(*map(Path, drawn))
    from executorch.extension.llm.export import export_llm

    sys.argv = [sys.argv[0], "--config", config]
    export_llm.main()


if __name__ == "__main__":
    main()
