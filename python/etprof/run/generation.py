"""What is generated in each iteration of a measurement, for programs that are language models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from etprof.base.errors import UsageError
from etprof.base.files import read_input
from etprof.base.records import Record
from etprof.run.tokenizer import encode_prompt, load_tokenizer

_MOST_BYTES: Final = 64 * 2**20
"""Of a file of token ids: more than the context of any model."""
_ARBITRARY_IDS: Final = 31
"""Of a prompt that is given by its length: few, so that every vocabulary has them."""
_MOST_DIGITS: Final = 18
"""Of a token id: fits 64 bits."""


class Generation(Record):
    """Greedy generation after a fixed prompt; the same in every launch of a run."""

    new_tokens: int
    prompt_tokens: tuple[int, ...]
    prefill_method: str | None = None
    """None: the runner's choice, `prefill` or the decode method."""
    decode_method: str | None = None
    """None: the runner's choice, `decode` or `forward`."""
    prompt: str | None = None
    """The text that `prompt_tokens` were made from."""
    tokenizer: str | None = None
    """File that makes text of tokens."""


def plan_generation(  # noqa: PLR0913 - keyword-only: all that a generation is made of
    *,
    new_tokens: int,
    prompt_tokens: Sequence[int] | Path | None = None,
    prompt_length: int | None = None,
    prompt: str | None = None,
    tokenizer: Path | None = None,
    prefill_method: str | None = None,
    decode_method: str | None = None,
) -> Generation:
    """Returns the generation with its prompt as ids, from a file or through the tokenizer.

    Raises UsageError when the prompt is missing, given twice, or cannot become ids.
    """
    problem = problem_of_prompt(prompt_tokens, prompt, tokenizer, prompt_length)
    if problem is not None:
        raise UsageError(problem)
    if prompt is not None and tokenizer is not None:
        ids = encode_prompt(tokenizer, prompt)
    elif prompt_length is not None:
        ids = tuple(1 + position % _ARBITRARY_IDS for position in range(prompt_length))
    else:
        ids = _read_ids(prompt_tokens or ())
    if tokenizer is not None:
        load_tokenizer(tokenizer)
    return Generation(
        new_tokens=new_tokens,
        prompt_tokens=ids,
        prefill_method=prefill_method,
        decode_method=decode_method,
        prompt=prompt,
        tokenizer=None if tokenizer is None else str(tokenizer.absolute()),
    )


def problem_of_prompt(
    tokens: object | None, prompt: str | None, tokenizer: Path | None, length: int | None = None
) -> str | None:
    """Says why the prompt is none, or is several; None when it is one."""
    if sum(source is not None for source in (tokens, prompt, length)) != 1:
        return (
            "tokens are generated after one prompt: give prompt tokens, a prompt length, or a "
            "prompt and tokenizer"
        )
    if prompt is not None and tokenizer is None:
        return "a prompt of text needs the model's tokenizer; give it too, or prompt tokens instead"
    return None


def token_shapes(example_shapes: Sequence[str], count: int) -> tuple[str, str]:
    """Returns the shapes of token ids and positions for `count` tokens, as the runner takes them.

    `example_shapes` are those of the method's example inputs, such as `1x64` and `64`; without them a batch
    of one and the position of the first token, as ExecuTorch's own export has it.
    """
    ids = example_shapes[0].split("x") if len(example_shapes) == 2 else ["1", "1"]
    positions = example_shapes[1] if len(example_shapes) == 2 else "1"
    has_position_per_token = positions.split("x")[-1] == ids[-1] != "1"
    rows = "x".join((*ids[:-1], str(count)))
    return rows, str(count) if has_position_per_token else positions


def parse_ids(text: str) -> tuple[int, ...] | None:
    """Reads ids separated by commas or blanks; None when `text` is something else."""
    tokens = text.replace(",", " ").split()
    # A tokenizer has at most some millions; Python refuses to read numbers of thousands of digits.
    are_ids = all(token.isdecimal() and len(token) <= _MOST_DIGITS for token in tokens)
    return tuple(map(int, tokens)) if tokens and are_ids else None


def _read_ids(prompt_tokens: Sequence[int] | Path) -> tuple[int, ...]:
    """Returns the ids, or those in the file."""
    if not isinstance(prompt_tokens, Path):
        ids: tuple[int, ...] | None = tuple(prompt_tokens)
    else:
        way_out = "give a file of token ids, separated by commas"
        data = read_input(prompt_tokens, most_bytes=_MOST_BYTES, way_out=way_out, error=UsageError)
        ids = parse_ids(data.decode("utf-8", "replace"))
    if not ids:
        msg = (
            f"the prompt tokens {prompt_tokens} are no ids; give whole numbers, separated by commas"
        )
        raise UsageError(msg)
    return ids
