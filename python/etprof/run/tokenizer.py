"""Text to token ids and back, with the tokenizer that belongs to a model.

The libraries come with ExecuTorch: Hugging Face's tokenizers for a tokenizer.json, and
pytorch-tokenizers for SentencePiece's models and tiktoken's tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from etprof.base.errors import InputFileError, UsageError


class Tokenizer(Protocol):
    """What all tokenizers offer."""

    def encode(self, s: str, *, bos: bool, eos: bool) -> list[int]:
        """Returns the ids of a text, after the token that begins a text where one is known."""

    def decode(self, t: list[int]) -> str:
        """Returns the text of ids."""


def load_tokenizer(path: Path) -> Tokenizer:
    """Reads a tokenizer; raises InputFileError that names the file when it is none."""
    if not path.is_file():
        msg = f"tokenizer {path} does not exist; give the file that came with the model"
        raise InputFileError(msg)
    if path.suffix == ".json":
        return _open(_HuggingFace, path)
    from pytorch_tokenizers import Llama2cTokenizer, TiktokenTokenizer

    try:
        return _open(Llama2cTokenizer, path)
    except InputFileError:
        with _no_tiktoken_cache():
            return _open(TiktokenTokenizer, path)


@contextmanager
def _no_tiktoken_cache() -> Iterator[None]:
    """Keeps tiktoken from its cache: what it once read, by path alone, in a folder of everyone's."""
    variable = "TIKTOKEN_CACHE_DIR"
    before = os.environ.get(variable)
    os.environ[variable] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


class _HuggingFace:
    """Read without pytorch-tokenizers, whose import logs to stderr."""

    def __init__(self, path: str) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(path)

    def encode(self, s: str, *, bos: bool, eos: bool) -> list[int]:  # noqa: ARG002 - the file says
        """Returns the ids of a text; which tokens begin and end it is in the file."""
        ids: list[int] = self._tokenizer.encode(s).ids
        return ids

    def decode(self, t: list[int]) -> str:
        """Returns the text of ids."""
        text: str = self._tokenizer.decode(t)
        return text


def _open(kind: Callable[[str], Tokenizer], path: Path) -> Tokenizer:
    with _naming(path):
        return kind(str(path))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns whatever a library raises of a tokenizer into InputFileError, which names the file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    # The libraries raise anything; a panic of Rust's is no Exception even.
    except BaseException as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        msg = (
            f"{path} is not a known kind of tokenizer ({reason}); give a tokenizer.json, a "
            "SentencePiece model or a tiktoken table"
        )
        raise InputFileError(msg) from error


def encode_prompt(path: Path, text: str) -> tuple[int, ...]:
    """Returns the ids of a prompt; raises UsageError when it has none."""
    tokenizer = load_tokenizer(path)
    # A damaged file may load, and fail with the first text.
    with _naming(path):
        ids = tuple(tokenizer.encode(text, bos=True, eos=False))
    if not ids:
        msg = f"the prompt {text!r} has no token; give a text with at least one word"
        raise UsageError(msg)
    return ids


def decode_tokens(path: Path, ids: Sequence[int]) -> str:
    """Returns the text of token ids."""
    tokenizer = load_tokenizer(path)
    with _naming(path):
        return tokenizer.decode(list(ids))
