"""Makes what ExecuTorch's own LLM export makes, small: program, tokenizer, and eager's answer.

usage: python -m tests.integration.llm_export FOLDER

The network is LLaMA's with random weights, so it says nothing sensible; the tokenizer is trained
here on a few lines and stands in for a model's own. A process of its own, because the export
changes the folder it works in, and warns about itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from executorch.examples.models.llama.export_llama_lib import export_llama
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.extension.llm.export.config.llm_config import LlmConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PROMPT = "Once upon a time there was a phone"
NEW_TOKENS = 64
_CONTEXT, _VOCABULARY = 128, 384
_PARAMETERS = {
    "dim": 64, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": _VOCABULARY,
    "multiple_of": 32, "hidden_dim": 128, "norm_eps": 1e-5,
}  # fmt: skip
_LINES = [
    "Once upon a time there was a phone with a matrix unit that nobody asked.",
    "It multiplied quietly, and then it multiplied twice as fast, and nobody knew why.",
]


def train_tokenizer(path: Path) -> Tokenizer:
    """Byte pairs, so that every text has tokens; at most as many as the model knows."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_LINES, trainer)
    tokenizer.save(str(path))
    return tokenizer


def make_network() -> torch.nn.Module:
    """LLaMA with random weights, large enough to choose different tokens."""
    arguments = ModelArgs(
        **_PARAMETERS, max_seq_len=_CONTEXT, max_context_len=_CONTEXT, use_kv_cache=True,
        enable_dynamic_shape=True,
    )  # fmt: skip
    network: torch.nn.Module = construct_transformer(arguments)
    for parameter in network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return network.eval()


def generate_eagerly(network: torch.nn.Module, prompt: list[int]) -> list[int]:
    """Greedy tokens of the network itself, the prompt read one by one."""
    tokens: list[int] = []
    with torch.no_grad():
        for position in range(len(prompt) + NEW_TOKENS - 1):
            known = [*prompt, *tokens][position]
            scores = network(torch.tensor([[known]]), {"input_pos": torch.tensor([position])})
            if position >= len(prompt) - 1:
                tokens.append(int(scores.flatten().argmax()))
    return tokens


def export(folder: Path, network: torch.nn.Module) -> None:
    """Exports through XNNPACK; the runtime's SDK has no custom attention operator, so without."""
    (folder / "params.json").write_text(json.dumps(_PARAMETERS))
    torch.save(network.state_dict(), folder / "weights.pth")
    config = LlmConfig()
    config.base.params = str(folder / "params.json")
    config.base.checkpoint = str(folder / "weights.pth")
    config.model.use_kv_cache = True
    config.model.use_sdpa_with_kv_cache = False
    config.model.enable_dynamic_shape = True
    config.export.max_seq_length = config.export.max_context_length = _CONTEXT
    config.export.output_name = str(folder / "llm.pte")
    config.backend.xnnpack.enabled = True
    export_llama(config)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    network = make_network()
    prompt = train_tokenizer(folder / "tokenizer.json").encode(PROMPT).ids
    export(folder, network)
    reference = {"prompt": prompt, "tokens": generate_eagerly(network, prompt)}
    (folder / "reference.json").write_text(json.dumps(reference))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
