"""What a shown name may look like (S3): visible, bounded, the same twice, and apart from others."""

from __future__ import annotations

import copy
import json
import pickle
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from etprof.base.plain_table import PlainTable
from etprof.base.text import (
    LONGEST_NAME,
    ChangedName,
    clean,
    clean_all,
    clean_data,
    clean_lines,
    escape_unfit_json,
    raw_names,
    with_raw_names,
)

ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
INVISIBLE = "\u034f\u115f\u1160\u17b4\u180b\u200b\u2060\u2800\u3164\ufe0f\uffa0\U000e0100"


def test_honest_names_stay_as_they_are() -> None:
    for name in ("Convolution (NHWC, F32) IGEMM #1", "Größe µs ×2", "名前", "e\u0301", "a  b", ""):
        assert clean(name) is name


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("\x7f\x9b", r"\x7f\u009b"),
        ("line\nline\r\t", r"line\nline\r\t"),
        ("txt\u202egpj.exe", r"txt\u202egpj.exe"),
        ("\u2028\u2029\u061c\u2066\u200f", r"\u2028\u2029\u061c\u2066\u200f"),
        ("a\u200bb\U000e0041", r"a\u200bb\U000e0041"),
        ("\xa0\u2003", r"\u00a0\u2003"),
        ("\ue000\ufdd0\uffff", r"\ue000\ufdd0\uffff"),
        ("\ud800", r"\ud800"),
        (b"\xff\xed\xa0\x80".decode("utf-8", "surrogateescape"), r"\xff\xed\xa0\x80"),
        ("\u0301a", r"\u0301a"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + r"\u0301\u0301"),
    ],
)
def test_unfit_characters_are_seen(raw: str, shown: str) -> None:
    found = clean(raw)
    assert found == shown
    assert isinstance(found, ChangedName)


@pytest.mark.slow
def test_every_character_of_this_unicode_that_is_no_glyph_is_escaped() -> None:
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        is_space = category == "Zs" and character != " "
        if is_space or category in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} or character in INVISIBLE:
            assert clean(f"a{character}") != f"a{character}", hex(code)
        elif (
            category[0] in "LNPS" and code < 0xFF00 and "FILLER" not in unicodedata.name(character)
        ):
            assert clean(f"a{character}") == f"a{character}" or character in INVISIBLE, hex(code)


@settings(deadline=None)
@given(ANY)
def test_cleaning_twice_changes_nothing_more(raw: str) -> None:
    found = clean(raw)
    assert clean(found) == clean(str(found)) == found
    assert len(found) <= LONGEST_NAME
    found.encode()
    assert all(c == " " or unicodedata.category(c)[0] not in "CZ" or c.isprintable()
               or unicodedata.category(c) == "Cn" for c in found)  # fmt: skip


@settings(deadline=None)
@given(st.lists(ANY, unique=True, max_size=12))
def test_names_that_differ_stay_apart(raws: list[str]) -> None:
    shown = clean_all([*raws, *map(clean, raws)])
    both = dict(zip([*raws, *map(str, map(clean, raws))], shown, strict=True))
    assert len(set(both.values())) == len(both)
    # AND honest ones keep their name
    assert all(shown == raw for raw, shown in both.items() if clean(raw) == raw)


def test_a_long_name_is_cut_and_keeps_what_tells_it_apart() -> None:
    one, other = (clean("x" * 5000 + end) for end in "ab")
    assert len(one) == len(other) == LONGEST_NAME
    assert one != other
    assert re.fullmatch(r"x+…[0-9a-f]{16}", one)
    assert clean("y" * LONGEST_NAME) == "y" * LONGEST_NAME


def test_the_bytes_can_be_had_back() -> None:
    raw = b"\x1b\\\xff\xe2\x80\xae"
    name = clean(raw.decode("utf-8", "surrogateescape"))
    document = with_raw_names({"label": name, "list": [{name: 1}], "other": "honest"})
    (told,) = document["raw_names"].values()
    assert told.isascii()
    assert told.encode().decode("unicode_escape").encode("latin-1") == raw
    assert raw_names(copy.deepcopy(name), pickle.loads(pickle.dumps(name))) == raw_names(name)  # noqa: S301
    assert "raw_names" not in with_raw_names({"label": "honest"})


def test_data_is_cleaned_at_any_depth_and_loses_no_key() -> None:
    data = {"a\n": ["\x1b", {"b\u202e": 1}], "a\\n": None, "n": 1.5}
    found = clean_data(data)
    assert len(found) == len(data)
    assert list(found.values()) == [["\\x1b", {"b\\u202e": 1}], None, 1.5]


def test_a_name_writes_no_message_of_its_own() -> None:
    assert clean_lines("etprof: a\netprof: all is well\n  field: b\x1b") == (
        "etprof: a\n  etprof: all is well\n  field: b\\x1b"
    )


def test_cells_headers_and_titles_of_a_table_are_text() -> None:
    table = PlainTable("[b]head", title="[red]title :smile:", min_width=60)
    table.add_row("[/nothing]")
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table)
    assert all(text in capture.get() for text in ("[b]head", "[red]title :smile:", "[/nothing]"))


def test_json_means_the_same_and_shows_nothing_unfit() -> None:
    value = {"prompt": "a\u202eb\U000e0041\x9b\n\x1b é"}
    text = escape_unfit_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert "é" in text
    assert not set("\u202e\U000e0041\x9b\x1b") & set(text)
