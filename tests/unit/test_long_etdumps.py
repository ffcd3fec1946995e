"""N17: a file is split piece by piece, in bounded memory, with the numbers of the whole."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.analysis.split.executions import examine_executions, keep_near_median
from etprof.analysis.split.operators import split_operators
from etprof.base.errors import InputFileError
from etprof.base.process import run_command
from etprof.etdump import reader
from etprof.etdump.plausibility import Role, examine_events
from etprof.etdump.reader import ETDump, ETDumpFormatError, LongETDump, load_etdump, open_etdump
from tests.etdump_writer import etdump, event, event_block, profile_event, write_etdump
from tests.recorded_etdumps import CHANGES, Recording, changed, record

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOCKS = {
    "64 bits": record(),
    "32 bits, wrapping in an execution": record(start=2**32 - 1_502_000, bits=32),
    "32 bits, wrapping between executions": record(start=2**32 - 1_010_000, bits=32),
}


class InPieces(LongETDump):
    """An ETDump in memory, of which `rows` events and the rest of an execution are a piece."""

    def __init__(self, dump: ETDump, rows: int) -> None:
        object.__setattr__(self, "dump", dump)
        object.__setattr__(self, "rows", rows)

    def pieces(self) -> Iterator[ETDump]:
        dump: ETDump = self.dump  # type: ignore[attr-defined]
        profile = dump.profile
        ends = np.flatnonzero(np.array([*dump.names, ""])[profile.name_id] == reader.EXECUTE) + 1
        start = 0
        while start < profile.name_id.size:
            later = ends[ends >= start + self.rows]  # type: ignore[attr-defined]
            end = int(later[0]) if later.size else profile.name_id.size
            cut = {n: getattr(profile, n)[start:end] for n in profile.__slots__}
            yield replace(dump, profile=type(profile)(**cut))
            start = end


def outcome(dump: ETDump | LongETDump) -> object:
    """The split, or why there is none."""
    try:
        return split_operators(keep_near_median([examine_executions(dump)]))
    except InputFileError as error:
        return str(error)


def long(path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, events: int) -> LongETDump:
    """The file as one that is too long for memory."""
    monkeypatch.setattr(reader, "_SHORT_BYTES", 0)
    monkeypatch.setattr(reader, "_PIECE_EVENTS", events)
    path.write_bytes(data)
    found = open_etdump(path)
    assert isinstance(found, LongETDump)
    return found


@pytest.mark.parametrize("events", [1, 7, 50, 1000])
@pytest.mark.parametrize("recording", CLOCKS.values(), ids=CLOCKS)
def test_pieces_hold_all_events_and_whole_executions(
    recording: Recording, events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17"""
    whole = load_etdump(recording.data)
    dump = long(tmp_path / "x.etdump", recording.data, monkeypatch, events)
    pieces = list(dump.pieces())
    assert (len(pieces) == 1) == (events == 1000)
    for name in ("event_index", "name_id", "delegate_debug_id_str_id", "start_time", "end_time"):
        together = np.concatenate([getattr(piece.profile, name) for piece in pieces])
        assert np.array_equal(together, getattr(whole.profile, name)), name
    for piece in pieces:
        assert piece.names[piece.profile.name_id[-1]] == reader.EXECUTE
        assert piece.profile.name_id.size < events + 8
        first, last = piece.first_block, piece.first_block + len(piece.blocks.name_id)
        assert np.array_equal(piece.blocks.event_begin, whole.blocks.event_begin[first:last])
        assert np.array_equal(piece.blocks.name_id, whole.blocks.name_id[first:last])
    assert outcome(dump) == outcome(whole)


def test_a_block_of_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N17: as etprof-runner writes 100 000 inferences."""
    blocks = [
        event_block(
            b"Execute",
            [
                event(
                    profile=profile_event(
                        b"Method::execute", start_time=10 * i, end_time=10 * i + 9
                    )
                )
                for i in range(count)
            ],
        )
        for count in (5, 0, 30, 1)
    ]
    data = bytes(write_etdump(etdump(blocks)).data)
    pieces = list(long(tmp_path / "x.etdump", data, monkeypatch, 4).pieces())
    assert [piece.profile.name_id.size for piece in pieces] == [4] * 9
    assert [piece.first_block for piece in pieces] == [0, 0, 2, 2, 2, 2, 2, 2, 2]
    assert [piece.blocks.event_begin.tolist() for piece in pieces[:3]] == [[0], [0, 5, 5], [5]]
    assert pieces[-1].profile.block_index.tolist() == [0, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("recording", CLOCKS.values(), ids=CLOCKS)
def test_damage_is_the_same_in_pieces(recording: Recording, change: str) -> None:
    """N17: what cannot be so is known of neighbours across pieces, and of clocks by all of them."""
    whole = load_etdump(recording.data)
    roles = examine_events(whole).roles
    rows = np.flatnonzero((roles == Role.EXECUTE) | (roles == Role.LOAD))
    for row in (*rows[:6], *rows[6::5], 40, 41, 42, 43, 44, 45):
        for column in ("start_time", "end_time"):
            dump = changed(whole, int(row), column, CHANGES[change])
            expected = outcome(dump)
            assert outcome(InPieces(dump, 1)) == expected
            assert outcome(InPieces(dump, 20)) == expected


def test_an_event_that_two_cuts_contradict_is_counted_once() -> None:
    """N17: it overlaps the one before it and the one behind it."""
    whole = load_etdump(record().data)
    rows = np.flatnonzero(examine_events(whole).roles == Role.EXECUTE)[4:6].tolist()
    for row in rows:
        whole = changed(whole, row, "end_time", lambda stamp: stamp + 10**5)
    assert outcome(InPieces(whole, 1)) == outcome(whole)


def test_damage_far_into_a_long_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: with the file's name and the place, as of a short one."""
    sound = record()
    data = sound.written.patch(sound.written.field(sound.events[-1], 0), "I", 2**30)
    with pytest.raises(ETDumpFormatError) as whole:
        load_etdump(data)
    dump = long(tmp_path / "x.etdump", data, monkeypatch, 7)
    with pytest.raises(ETDumpFormatError) as caught:
        examine_executions(dump)
    assert (caught.value.reason, caught.value.offset) == (whole.value.reason, whole.value.offset)


PEAK = """
import sys
from etprof.cli import main
assert main(["analyze", sys.argv[1], "--json"]) == 0
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_ten_times_the_inferences_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: 1.6 GB for 7 M events, 230 bytes each."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from etdump_samples import repeat_blocks

    peaks_mb = []
    for copies in (200, 2000):
        path = tmp_path / "x.etdump"
        repeat_blocks(record(48).data, copies, path)
        done = run_command([sys.executable, "-c", PEAK, str(path)])
        assert done.exit_code == 0, done.stderr
        peaks_mb.append(int(done.stderr.split()[-1]))
    assert peaks_mb[1] < peaks_mb[0] + 25
