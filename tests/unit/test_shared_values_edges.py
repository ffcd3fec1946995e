"""Edges of what all parts share: figures, names, messages, JSON, records, files."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError

from etprof.base import atomic, files
from etprof.base.cpu_list import parse_cpus
from etprof.base.errors import InputFileError, OutputError, first_line
from etprof.base.json_input import check_numbers, parse_json
from etprof.base.process import _Call, stack_bytes
from etprof.base.records import CleanData, Count, Named, Rate, Record, read_record, sme_label
from etprof.base.text import (
    as_ascii,
    as_operand,
    clean,
    clean_all,
    clean_lines,
    command_line,
    escape_unfit_json,
    join_names,
    kept_flags,
    raw_names,
    suggest,
    what_differs,
    without_flags,
)
from etprof.base.units import (
    be,
    count_of,
    first_texts,
    format_change,
    format_count,
    format_delta,
    format_duration,
    format_interval,
    format_number,
    format_prediction,
    format_range,
    format_rate,
    format_ratio,
    format_ratio_ends,
    format_share,
    format_share_range,
    format_size,
    format_value,
)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (-0.0005, "0 ns"),
        (-0.001, "-0.00100 ns"),
        (0.5, "0.500 ns"),
        (9.994, "9.99 ns"),
        (9.996, "10.0 ns"),
        (99.96, "100 ns"),
        (999.5, "1.00 µs"),
        (999.49, "999 ns"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (-999_500, "-1.00 ms"),
        (1234e9, "1230 s"),
    ],
)
def test_a_time_that_rounds_up_to_a_thousand_is_one_of_the_next_unit(
    duration_ns: float, text: str
) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_delta(-0.5), "−0.500 ns"),
        (format_delta(0.5), "+0.500 ns"),
        (format_interval(1, None), "–"),
        (format_interval(None, None), "–"),
        (format_interval(0, 1), "0 … 1.00 ns"),
        (format_interval(999.4, 999.6), "0.999 … 1.00 µs"),
        (format_share(0.9996), "100.0 %"),
        (format_share_range(-0.0049, 0.125), "0 … 12 %"),
        (format_share_range(-0.042, 0.136), "−4 … 14 %"),
        (format_size(1023), "1023 B"),
        (format_size(1024), "1.0 KiB"),
        (format_size(-1024), "-1.0 KiB"),
        (format_size(2**20 - 1), "1024.0 KiB"),
        (format_size(2**20), "1.0 MiB"),
        (format_size(2**30), "1.0 GiB"),
        (format_size(3 * 2**40), "3072.0 GiB"),
        (format_size(0), "0 B"),
        (format_count(1234.5), "1,234.50"),
        (format_count(1234.0), "1,234"),
        (format_count(None), "–"),
        (format_number(0), "0"),
        (format_number(0.0), "0"),
        (format_number(None), "–"),
        (format_number(-0.01234), "-0.0123"),
        (format_number(9.995), "9.99"),
        (format_number(9.996), "10.0"),
        (format_number(99.5), "99.5"),
        (format_number(100.4), "100"),
        (format_number(123_456), "123000"),
        (format_rate(0), "0 /s"),
        (format_change(0.0), "0.0 %"),
        (format_change(0.0006), "+0.1 %"),
        (format_change(-0.0006), "−0.1 %"),
    ],
)
def test_numbers_at_the_edges_of_their_units(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("ends_ns", "text"),
    [
        ((1_000, 1_000), "1.0 … 1.0 µs"),
        ((100, 990_000), "0 … 990 µs"),
        ((-1e9, 2e9), "−1.0 … 2.0 s"),
        ((-2e9, 1e9), "−2.0 … 1.0 s"),
        ((-20e9, 1e9), "−20 … 1 s"),
        ((0.25, 0.5), "0.25 … 0.50 ns"),
        ((0.04, 0.06), "0.040 … 0.060 ns"),
        ((0, -30), "0 … −30 ns"),
    ],
)
def test_a_prediction_has_two_digits_of_the_larger_end(
    ends_ns: tuple[float, float], text: str
) -> None:
    assert format_prediction(*ends_ns) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_ratio(None), "–"),
        (format_ratio(None, 0.2), "–"),
        (format_ratio(1.5524, 0.1526), "1.55×"),
        (format_ratio(1.5524, 1.0), "1.6×"),
        (format_ratio(1.5524, 0.99), "1.55×"),
        (format_ratio(1.5524, 10.0), "2×"),
        (format_ratio(1.5524, float("inf")), "1.55×"),
        (format_ratio(1.5524, 0.0), "1.55×"),
        (format_ratio(1.5524, 0.001), "1.55×"),
        (format_ratio(15.52, 0.01), "15.5×"),
        (" ".join(format_ratio_ends(1.5524, 1.2618, 1.5670)), "1.26× 1.57×"),
        (" ".join(format_ratio_ends(1.5, 0.5, 2.5)), "0.5× 2.5×"),
        (" ".join(format_ratio_ends(1.5, 1.0, 2.9)), "1.00× 2.90×"),
        # Without a value between them, what is halfway says how finely.
        (" ".join(format_ratio_ends(None, 5.5, 5.9)), "5.50× 5.90×"),
        (" ".join(format_ratio_ends(None, 9.9, 10.3)), "9.9× 10.3×"),
        (" ".join(format_ratio_ends(None, 19.98, 20.02)), "20.0× 20.0×"),
        (" ".join(format_ratio_ends(None, 1.0, 2.0)), "1.00× 2.00×"),
    ],
)
def test_a_speedup_is_written_as_finely_as_it_is_known(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("", 1.2345, "1.23"),
        ("1", 12.345, "12.3"),
        ("MACs/B", 0.12345, "0.123"),
        ("±ns", -1500, "−1.50 µs"),
        ("count", 1500, "1,500"),
        ("bits", 512, "512 bits"),
        ("share", 0.5, "50.0 %"),
        ("ratio", 2, "2.00×"),
        ("change", 0.5, "+50.0 %"),
        ("≤", 0.051, "≤ 0.0510"),
        ("p", 0.01234, "0.012"),
        ("scientific", 12_345, "1.23e+04"),
        ("ns", True, "yes"),
        ("ns", False, "no"),
        ("ns", "as it is", "as it is"),
        ("bits", None, "–"),
        ("p", None, "–"),
    ],
)
def test_each_unit_has_its_own_way(unit: str, value: float | str | None, expected: str) -> None:
    assert format_value(unit, value) == expected


def test_ranges_count_nouns_and_lists() -> None:
    assert format_range("bytes", 1024, 2048) == "1.0 KiB … 2.0 KiB"
    assert format_range("ns", None, 1.0) == format_range("bytes", 1.0, None) == "–"
    assert (be(0), be(1), be(2)) == ("are", "is", "are")
    assert [count_of(n, "layer") for n in (0, 1, 2, 1000)] == [
        "0 layers", "1 layer", "2 layers", "1,000 layers",
    ]  # fmt: skip
    assert [count_of(n, "launch", "launches") for n in (1, 2)] == ["1 launch", "2 launches"]
    names = ["a", "b", "c"]
    assert first_texts(names, 3) == names
    assert first_texts(names, 2) == ["a", "b", "and 1 more"]
    assert first_texts(names, 2, "layer") == ["a", "b", "and 1 more layer"]
    assert first_texts(names, 1, "layer") == ["a", "and 2 more layers"]
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b"]) == "a and b"
    assert first_line(ValueError("\n  one  \ntwo")) == "ValueError: one"
    assert first_line(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("a_b_c", "a_x_c"), ("b", "x")),
        (("b_c", "x_c"), ("b", "x")),
        (("net_fp16_a", "net_int8_b"), ("fp16_a", "int8_b")),
        (("net", "net_int8"), ("net", "net_int8")),
        (("toy_net_fp16", "toy_net_fp16_split"), ("fp16", "fp16_split")),
        (("net_int8", "int8"), ("net_int8", "int8")),
        (("big_net", "net"), ("big_net", "net")),
        (("a_b", "a_b"), ("b", "b")),
    ],
)
def test_two_names_are_shortened_to_where_they_part(
    names: tuple[str, str], shown: tuple[str, str]
) -> None:
    assert what_differs(*names) == shown


def test_signs_have_a_look_in_ascii_and_other_letters_an_escape() -> None:
    assert as_ascii("1.80 … 1.86 µs × 2 – −3") == "1.80 ~ 1.86 us x 2 - -3"
    assert as_ascii("名\x80") == r"\u540d\x80"
    assert as_ascii("plain") == "plain"


def test_a_cut_name_has_its_whole_bound_and_the_hash_of_what_it_was() -> None:
    # SHA-256 of a hundred letters x begins so, as `sha256sum` has it.
    assert clean("x" * 100, 40) == "x" * 23 + "…09ecb6ebc8bcefc7"
    assert clean("x" * 40, 40) == "x" * 40
    assert clean("é" * 40, 40) == "é" * 40
    assert clean("x" * 41, 40) != clean("x" * 42, 40)


def test_marks_on_each_letter_are_counted_anew() -> None:
    accent = "\u0301"
    assert clean(f"a{accent * 4}b{accent * 5}") == f"a{accent * 4}b{accent * 4}\\u0301"
    assert clean(f"{accent}é") == r"\u0301é"


def test_messages_have_one_line_of_their_own_and_may_be_long() -> None:
    assert clean_lines("a\n    b\n  c\nd") == "a\n    b\n  c\n  d"
    assert clean_lines("y" * 10_000) == "y" * 10_000
    assert len(clean_lines("y" * 10_001)) == 10_000


def test_names_that_look_alike_keep_their_first_letters() -> None:
    raws = ["a\n", "a\\n", "b"]
    shown = clean_all(raws)
    assert shown[1:] == ("a\\n", "b")
    assert re.fullmatch(r"a\\n~[0-9a-f]{16}", shown[0])
    assert len(clean_all(["\n" + "z" * 2000, "\\n" + "z" * 982 + "…"])[0]) == 1000


def test_json_escapes_what_lies_beyond_the_basic_plane_as_two() -> None:
    assert escape_unfit_json('"\U000e0041"') == r'"\udb40\udc41"'
    assert escape_unfit_json('"\x7f"') == r'"\u007f"'
    assert escape_unfit_json('"é"') == '"é"'


FLAGS = {"--threads": 1, "--full": 0, "--input": 1}


@pytest.mark.parametrize(
    ("arguments", "kept", "others"),
    [
        ([], (), ()),
        (["net", "--threads", "2", "--full"], ("--threads", "2", "--full"), ("net",)),
        (["--full", "net"], ("--full",), ("net",)),
        (["--threads=2", "net"], ("--threads", "2"), ("net",)),
        (["--threads=", "net"], ("--threads", ""), ("net",)),
        (["net", "--threads"], (), ("net",)),
        (["--input", "a", "--input", "b", "c"], ("--input", "a", "--input", "b"), ("c",)),
        (["--other=1", "--input", "x"], ("--input", "x"), ("--other=1",)),
    ],
)
def test_flags_are_kept_or_left_out_with_their_values(
    arguments: list[str], kept: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert kept_flags(arguments, FLAGS) == kept
    assert without_flags(arguments, FLAGS) == others


def test_commands_quote_and_hints_know_other_names() -> None:
    assert command_line("analyze", Path("-a b")) == "etprof analyze './-a b'"
    assert command_line("export", "-x") == "etprof export -x"
    assert [as_operand(text) for text in ("-a", "a-", "")] == ["./-a", "a-", ""]
    targets = ["local", "android", "emulator"]
    assert suggest("Phone", targets) == "; did you mean 'android'?"
    assert suggest("qemu", ["local", "android"]) == ""
    assert suggest("emulater", targets) == "; did you mean 'emulator'?"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", (0,)),
        ("3-3", (3,)),
        ("6,0-3", (0, 1, 2, 3, 6)),
        (" 1 , 2-3 ", (1, 2, 3)),
        ("0xf0", (4, 5, 6, 7)),
        ("0x1", (0,)),
        ("0x5", (0, 2)),
        ("9999", (9999,)),
    ],
)
def test_cpus_of_a_list_and_of_a_mask(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["", "1,", "10000", "-1", "0x", "0xg", "1-", f"0x{'f' * 65}"])
def test_what_is_no_list_of_cpus_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of CPUs"):
        parse_cpus(text)


LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (LARGEST + 1, "document"),
        (-LARGEST - 1, "document"),
        ([0, LARGEST + 1], "1"),
        ({"a": [{"b": [1, -LARGEST - 1]}]}, "a.0.b.1"),
        ({"a": [1.0, float("inf")]}, "a.1"),
        ({"a": [-float("inf"), 1.0]}, "a.0"),
        ([{"a": True, "b": LARGEST + 1}], "0.b"),
        ({"a": ["text", 3, LARGEST * 2]}, "a.2"),
        ({"x" * 300: [float("inf")]}, "x" * 198 + ".0"),
    ],
)
def test_a_number_that_is_too_large_is_named_by_its_field(document: object, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(field)}: the number is too large$"):
        check_numbers(document)


def test_numbers_as_large_as_may_be_and_truths_are_let_through() -> None:
    check_numbers({"a": [LARGEST, -LARGEST, True, 1.5, None], "b": {"c": 1e308}})
    check_numbers([True, False])
    check_numbers([[], {}])


def test_the_first_field_by_name_that_stands_twice_is_told() -> None:
    text = '{"c": 1, "b": 1, "c": 2, "b": 2, "a": 1}'
    assert parse_json(text) == {"c": 2, "b": 2, "a": 1}
    with pytest.raises(ValueError, match="'b' stands twice in one object"):
        parse_json(text, unique_keys=True)


class Facts(Record):
    """What a file of this test holds."""

    count: Count = 0
    rate: Rate = 1.0
    entries: Named[int] = Field(default_factory=dict)
    content: CleanData = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"count": 0}, None),
        ({"count": 2**63 - 1}, None),
        ({"count": -1}, "count"),
        ({"count": 2**63}, "count"),
        ({"rate": 1e-9}, None),
        ({"rate": 0}, "rate"),
        ({"rate": 1e15}, "rate"),
        ({"rate": 9e14}, None),
        ({"rate": 1.5e15}, "rate"),
        ({"entries": {"a": 1, "b": 2}}, None),
        ({"entries": {"a\n": 1, "a\\n": 2}}, "entries"),
        ({"newer": 1}, None),
    ],
)
def test_a_record_s_numbers_have_bounds(fields: dict[str, Any], field: str | None) -> None:
    if field is None:
        kept = Facts.model_validate(fields).model_dump(exclude_unset=True)
        assert kept == {name: value for name, value in fields.items() if name != "newer"}
    else:
        with pytest.raises(ValidationError, match=rf"(?m)^{field}$"):
            Facts.model_validate(fields)


def test_a_record_cannot_be_changed_and_is_bounded(tmp_path: Path) -> None:
    facts = Facts(content={"a\n": ["\x1b"]})
    assert facts.content == {"a\\n": ["\\x1b"]}
    with pytest.raises(ValidationError):
        facts.count = 2  # type: ignore[misc]
    path = tmp_path / "facts.json"
    path.write_text('{"count": 3}')
    assert read_record(Facts, path, way_out="redo", most_bytes=12).count == 3
    with pytest.raises(InputFileError, match=r"longer than 11 bytes, the most .*; redo"):
        read_record(Facts, path, way_out="redo", most_bytes=11)
    assert [sme_label(mode) for mode in ("off", "sme2", "sme3")] == ["SME off", "SME2", "SME sme3"]


def test_a_file_is_read_up_to_its_bound_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(2**20 + 1))
    assert len(files.read_bounded(path, 2**20 + 1)) == 2**20 + 1
    with pytest.raises(OSError, match="it is longer than 1 MiB, the most"):
        files.read_bounded(path, 2**20)
    with pytest.raises(OSError, match="it is longer than 1048575 bytes, the most"):
        files.read_bounded(path, 2**20 - 1)
    path.write_bytes(b"")
    assert files.read_bounded(path, 0) == b""
    files.check_regular(path)
    files.check_regular(tmp_path / "none")
    with pytest.raises(OSError, match="it is a directory"):
        files.check_regular(tmp_path)
    # As FIPS 180 has it of no message at all.
    assert files.hash_file(path).startswith("e3b0c44298fc1c149afbf4c8996fb924")


def test_a_folder_of_the_user_is_where_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert files.user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / "cache" / "etprof"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.user_folder("XDG_CACHE_HOME", ".cache") == tmp_path / "home/.cache/etprof"
    monkeypatch.setattr(files, "_home", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    private = tmp_path / f"etprof-user-{os.getuid()}"
    assert files.user_folder("XDG_CACHE_HOME", ".cache") == private / ".cache" / "etprof"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    for mode in (0o720, 0o702):
        private.chmod(mode)
        with pytest.raises(OutputError, match=r"is not this user's alone; set HOME or XDG_CACHE"):
            files.user_folder("XDG_CACHE_HOME", ".cache")
    private.chmod(0o755)
    assert files.user_folder("XDG_CACHE_HOME", ".cache").is_relative_to(private)


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic.write_text(tmp_path / "a" / "shared", "x")
        with atomic.replacing(tmp_path / "private", mode=0o600) as stream:
            stream.write(b"y")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"a": 0o750, "shared": 0o640, "private": 0o600}


def test_json_of_ours_is_indented_and_has_letters_as_they_are() -> None:
    assert atomic.json_bytes({"é": [1], "b": "\udcff"}).decode() == (
        '{\n  "é": [\n    1\n  ],\n  "b": "?"\n}\n'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic.json_bytes(float("nan"))


def test_a_staged_folder_moves_its_last_file_last(tmp_path: Path) -> None:
    """Whoever finds the last one finds all the others, and none of an earlier export."""
    (tmp_path / "last.json").write_text("old")
    (tmp_path / "old.pte").write_text("old")
    (tmp_path / "kept.pte").write_text("old")
    family = [tmp_path / name for name in ("old.pte", "new.pte", "gone.pte")]
    order: list[str] = []
    replace = atomic._replace

    def remembered(source: Path, target: Path) -> None:
        order.append(target.name)
        replace(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "_replace", remembered)
        with atomic.staged_folder(tmp_path, last="last.json", family=family) as folder:
            for name in ("last.json", "new.pte", "zero.txt"):
                (folder / name).write_text("new")
    assert order[-1] == "last.json"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "last.json": "new", "new.pte": "new", "zero.txt": "new", "kept.pte": "old",
    }  # fmt: skip


def test_a_staged_folder_is_made_with_all_above_it(tmp_path: Path) -> None:
    with atomic.staged_folder(tmp_path / "of" / "a" / "model", last="x") as folder:
        (folder / "x").write_text("new")
    assert (tmp_path / "of/a/model/x").read_text() == "new"
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/x: .*file is a file; choose another folder"):
        atomic.write_text(tmp_path / "file" / "x", "")


def test_what_somebody_else_put_there_is_never_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "known")
    (tmp_path / "mine").write_text("thesis")
    (tmp_path / ".x.known").symlink_to(tmp_path / "mine")
    with pytest.raises(OutputError, match="File exists"):
        atomic.write_text(tmp_path / "x", "new")
    assert (tmp_path / "mine").read_text() == "thesis"
    lost = tmp_path / "etprof-a-b"
    lost.mkdir()
    (lost / ".scratch").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=r"\.scratch"):
        atomic._remove_if_lost(lost)
    assert lost.is_dir()


def test_the_bytes_of_a_changed_name_are_kept_in_ascii() -> None:
    name = clean("\x1f \\~\x7f\udcfe")
    assert name == r"\x1f \~\x7f\xfe"
    assert raw_names([name]) == {str(name): r"\x1f \\~\x7f\xfe"}


def test_a_folder_takes_the_place_of_a_folder_and_a_link_loses_itself_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "out" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs" / "old").write_text("")
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "mine").write_text("")
    (tmp_path / "out" / "link").symlink_to(target)
    family = [tmp_path / "out" / "link"]
    with atomic.staged_folder(tmp_path / "out", last="x", family=family) as folder:
        (folder / "runs").mkdir()
        (folder / "runs" / "new").write_text("")
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == ["new"]
    assert (target / "mine").exists()
    assert not (tmp_path / "out" / "link").is_symlink()


def test_a_stack_is_filled_to_whole_steps_of_16_kib() -> None:
    """Each string with its end, and a pointer of 8 bytes to it."""
    assert stack_bytes(["ab", "é"], {"A": "1"}) == (2 + 1 + 8) + (2 + 1 + 8) + (3 + 1 + 8)
    for length in (0, 1, 5000, 16_000):
        call = _Call(
            argv=("/bin/x", "x"), environment={"A": "y" * length}, folder=None,
            keeps_device=False, sees_our_end=False, fill_variable="FILL",
        )  # fmt: skip
        environment = call._environment({"HELD": "a b"})
        used = stack_bytes(call.argv, environment)
        assert used % 16384 == 0
        assert 0 <= len(environment["FILL"]) < 16384
        assert environment["HELD"] == "a b"


def test_schema_version_one_stands_before_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    from etprof.cli.output import show_json, show_schema

    show_json({"a": [1]})
    assert capsys.readouterr().out == '{\n  "schema_version": 1,\n  "a": [\n    1\n  ]\n}\n'
    show_schema({"a": 1})
    assert capsys.readouterr().out == '{\n  "a": 1\n}\n'
