"""Tokenizers are read from the file that is named, and from nothing else."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError
from etprof.run.tokenizer import decode_tokens, encode_prompt, load_tokenizer


class Panic(BaseException):
    """What Rust's libraries raise, as PyO3 hands it on: no Exception."""


def write_table(path: Path, first: int) -> None:
    """Writes a tiktoken table of single bytes, of which `first` has rank 0."""
    order = [first, *(byte for byte in range(256) if byte != first)]
    lines = [
        f"{base64.b64encode(bytes([byte])).decode()} {rank}" for rank, byte in enumerate(order)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def test_a_tiktoken_table_is_read_anew_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1: tiktoken keeps what it read by path alone, where every user of the machine may write."""
    found = {}
    for folder, first in (("one", ord("A")), ("two", ord("B"))):
        (tmp_path / folder).mkdir()
        write_table(tmp_path / folder / "tokenizer.model", first)
        monkeypatch.chdir(tmp_path / folder)
        (tmp_path / "tmp").mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        tokenizer = load_tokenizer(Path("tokenizer.model"))
        found[folder] = tokenizer.encode("AB", bos=False, eos=False)
    assert found == {"one": [0, 66], "two": [66, 0]}
    assert not any((tmp_path / "tmp").iterdir())
    assert "TIKTOKEN_CACHE_DIR" not in os.environ


def test_a_panic_of_a_library_is_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: a panic ended in a traceback with exit code 1, which CI reads as a regression."""

    def panic(_: str) -> None:
        raise Panic

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("etprof.run.tokenizer._HuggingFace", panic)
    with pytest.raises(InputFileError, match="Panic"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_tokenizer_that_fails_with_the_first_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: a tokenizer.json may load, and panic when it is used."""

    class Damaged:
        def encode(self, *_: object, **__: object) -> list[int]:
            raise Panic

        def decode(self, *_: object) -> str:
            raise Panic

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("etprof.run.tokenizer._HuggingFace", lambda _: Damaged())
    for use in (lambda path: encode_prompt(path, "one"), lambda path: decode_tokens(path, [1])):
        with pytest.raises(InputFileError, match=r"tokenizer\.json"):
            use(tmp_path / "tokenizer.json")


def test_an_interruption_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("etprof.run.tokenizer._HuggingFace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_tokenizer(tmp_path / "tokenizer.json")
