"""S5, S6: JSON from strangers is bounded; what is let through can be computed with and written."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from etprof.base.errors import InputFileError, UsageError
from etprof.base.json_input import parse_json, read_json
from etprof.base.records import Count, Record, read_record

NUMBERS = st.integers(-(2**64) + 1, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abcé"), inner),
)


@pytest.mark.slow
@settings(deadline=None)
@given(VALUES)
def test_what_others_write_is_read_as_it_was_meant(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == value == parse_json(text.encode(), unique_keys=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a": 1} x',
        '{"a": NaN}',
        '{"a": [Infinity]}',
        '{"a": [[-Infinity]]}',
        '{"a": {"b": [1.0, 2.0, 1e999]}}',
        "[-1e999]",
        "1" + 400 * "0",
        "[1, 2, 1" + 400 * "0" + "]",
        '["x", -1' + 400 * "0" + "]",
        "[18446744073709551616]",
        5000 * "1",
        '"\\ud800"',
        '{"\\udfff": 1}',
        '"\ud800"',
        b'"\xff"',
        b"\xff\xfe",
        10_000 * "[",
        10_000 * '{"a":',
        202 * "[" + 202 * "]",
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_nothing_can_compute_with_is_refused_in_one_line(text: str | bytes) -> None:
    for unique_keys in (False, True):
        with pytest.raises(ValueError, match=r"^.+$") as caught:
            parse_json(text, unique_keys=unique_keys)
        assert "\n" not in str(caught.value)


def test_seeds_and_latencies_of_any_size_are_let_through() -> None:
    numbers = [2**64 - 1, -1, 0.1, 1e308, 5e-324]
    assert parse_json(json.dumps(numbers)) == numbers
    assert math.isfinite(parse_json("1e-999"))


def test_a_field_that_stands_twice_is_refused_where_people_write() -> None:
    text = '{"a": {"b": 1, "b": 2}}'
    assert parse_json(text) == {"a": {"b": 2}}
    with pytest.raises(ValueError, match="'b' stands twice"):
        parse_json(text, unique_keys=True)


class Sample(Record):
    """What a stranger's file may hold."""

    latency_ns: list[Count] = Field(default_factory=list)
    duration_s: float = 0.0
    other: dict[str, object] = Field(default_factory=dict)
    label: Annotated[str, Field(min_length=1)] = "x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"latency_ns": [1, 9223372036854775808]}', r"latency_ns\.1: "),
        ('{"duration_s": 1e400}', "duration_s: the number is too large"),
        ('{"other": {"a": NaN}}', "Invalid JSON"),
        ('{"label": []}', "label: "),
        ("[]", "document: "),
        ("7", "document: "),
        ("null", "document: "),
    ],
)
def test_a_record_names_its_file_the_field_and_the_way_out(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match=rf"^.*manifest\.json is damaged: .*{words}.*; redo$"):
        read_record(Sample, path, way_out="redo")


def test_a_pipe_and_a_long_file_are_refused(tmp_path: Path) -> None:
    pipe, long = tmp_path / "pipe", tmp_path / "long"
    os.mkfifo(pipe)
    long.write_text(100 * " " + "{}")
    with pytest.raises(UsageError, match="named pipe"):
        read_json(pipe, way_out="redo", error=UsageError)
    with pytest.raises(InputFileError, match="longer than 100 bytes"):
        read_json(long, way_out="redo", most_bytes=100)
    assert read_json(long, way_out="redo", most_bytes=102) == {}
