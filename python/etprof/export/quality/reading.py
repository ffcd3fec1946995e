"""Has ExecuTorch's Python runtime read a text with a language model, token by token.

`python -m etprof.export.quality.reading PROGRAM.pte ASKED.json SCORES.bin` writes the scores after each
token as float32 and prints a JSON object. It is a process of its own because ExecuTorch ends the
process for some programs that it does not like.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from etprof.base.json_input import read_json

Scorer = Callable[[int, int], torch.Tensor]
"""From a token and its position to the scores of the next, of [vocabulary]."""


def score_text(scorer: Scorer, ids: Sequence[int]) -> torch.Tensor:
    """Returns float32 scores of [ids, vocabulary], each after the ids up to there."""
    return torch.stack([scorer(token, position).float() for position, token in enumerate(ids)])


def generate(scorer: Scorer, prompt: Sequence[int], count: int) -> list[int]:
    """Returns `count` new tokens after the prompt, each the most likely one."""
    tokens = list(prompt)
    for position in range(len(prompt) + count - 1):
        best = int(scorer(tokens[position], position).argmax())
        if position >= len(prompt) - 1:
            tokens.append(best)
    return tokens[len(prompt) :]


def last_scores(output: torch.Tensor) -> torch.Tensor:
    """Returns the scores of the last token, of [vocabulary]; a copy, for a program's memory is reused."""
    return output.detach().reshape(-1, output.shape[-1])[-1].clone()


def _scorer(path: Path, method: str, request: Any) -> Scorer:  # noqa: ANN401 - JSON
    """Returns what steps through a method that was loaded anew, so its cache is empty."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    loaded = program.load_method(method)
    dtypes = [getattr(torch, dtype_name) for dtype_name in request["dtypes"]]

    def score(token: int, position: int) -> torch.Tensor:
        inputs = [
            torch.full(shape, value, dtype=dtype)
            for shape, value, dtype in zip(
                request["shapes"], (token, position), dtypes, strict=True
            )
        ]
        return last_scores(loaded.execute(inputs)[0])

    # A method reads memory of its program.
    score.program = program  # type: ignore[attr-defined]
    return score


def main() -> None:
    """Reads the words of the command line, writes the scores and prints what was generated."""
    _, program, request_path, result = sys.argv
    # Several wait for each other at every small operator.
    torch.set_num_threads(1)
    request = read_json(Path(request_path), way_out="export again")
    path, method = Path(program), request["method"]
    scores = score_text(_scorer(path, method, request), request["ids"])
    tokens = generate(
        _scorer(path, method, request), request["ids"][: request["prompt"]], request["new"]
    )
    Path(result).write_bytes(scores.contiguous().numpy().tobytes())
    print(json.dumps({"vocabulary": scores.shape[1], "tokens": tokens}))


if __name__ == "__main__":
    main()
