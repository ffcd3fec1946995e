"""N17: a file is split piece by piece, in bounded memory, with the numbers of the whole."""

from __future__ import annotations

import os
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split import operators
from etprof.analysis.split.executions import examine_executions, keep_near_median
from etprof.analysis.split.operators import OperatorSplit, split_operators
from etprof.base.errors import InputFileError
from etprof.base.process import run_command
from etprof.etdump import reader
from etprof.etdump.plausibility import Role, examine_events
from etprof.etdump.reader import ETDump, ETDumpFormatError, LongETDump, load_etdump, open_etdump
from etprof.run.load import Run
from etprof.run.validation import check_events
from etprof.views.events import event_blocks, timeline_csv
from etprof.views.trace import experiment_slices
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


def executions(*names: bytes) -> bytes:
    """An ETDump with an execution for each of `names`, with a kernel of that name in it.

    Each has a delegate's event too, which is called as the execution is.
    """
    blocks = []
    for start, name in enumerate(names):
        at = 10**6 * start
        spans: tuple[tuple[bytes, int, int, dict[str, Any]], ...] = (
            (b"Method::execute", 2000, 50_000, {"instruction_id": 0, "delegate_debug_id_int": 7}),
            (b"DELEGATE_CALL", 1000, 60_000, {"instruction_id": 0}),
            (name, 62_000, 90_000, {"instruction_id": 1}),
            (b"OPERATOR_CALL", 61_000, 95_000, {"instruction_id": 1}),
            (b"Method::execute", 0, 100_000, {}),
        )
        events = [
            event(profile=profile_event(n, start_time=at + begin, end_time=at + end, **ids))
            for n, begin, end, ids in spans
        ]
        blocks.append(event_block(b"Execute", events))
    return bytes(write_etdump(etdump(blocks)).data)


def test_a_delegates_event_ends_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Review 17, 5: a piece that it ended left what stood before it in no execution."""
    data = executions(*[b"native_call_add"] * 30)
    dump = long(tmp_path / "x.etdump", data, monkeypatch, 1)
    assert [piece.profile.name_id.size for piece in dump.pieces()] == [5] * 30
    assert not isinstance(outcome(dump), str)
    assert outcome(dump) == outcome(load_etdump(data))


def test_each_name_is_read_and_cleaned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Review 17, 11: every piece brought and cleaned all names so far."""
    data = executions(*(b"native_call_%d" % i for i in range(40)))
    dump = long(tmp_path / "x.etdump", data, monkeypatch, 1)
    cleaned: list[str] = []

    def note(text: str) -> str:
        cleaned.append(text)
        return text

    monkeypatch.setattr(reader, "clean", note)
    names = [tuple(piece.names) for piece in dump.pieces()][-1]
    assert sorted(cleaned) == sorted(names)
    assert names == load_etdump(data).names


def test_names_that_look_alike_in_other_pieces_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: as in the whole file, with the same marks."""
    data = executions(b"native_call_\x1b", b"a", b"native_call_\\x1b", b"b", b"native_call_\x1b")
    *_, last = long(tmp_path / "x.etdump", data, monkeypatch, 1).pieces()
    whole = load_etdump(data)
    assert tuple(last.names) == whole.names
    assert last.raw_names == whole.raw_names
    assert len(set(last.names)) == len(last.names)


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


def test_all_that_is_shown_of_events_is_the_same_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: timeline, traces, event blocks and `validate` took the file whole, 230 bytes an event."""
    path, found = tmp_path / "x.etdump", []
    recording = record(40)
    damaged = recording.with_stamp(len(recording.events) // 2, "end_time", 1)
    for data in (recording.data, damaged):
        path.write_bytes(data)
        for _ in range(2):
            run = analyze_run(Run.load(path))
            (experiment,) = run.experiments
            (dump,) = (split.dump for split in experiment.loaded.splits)
            blocks = [
                [(vars(event) | {"raw_ns": event.raw_ns.tolist()}) for event in block.events]
                for block in event_blocks(experiment.executions)
            ]
            found.append(
                (
                    "".join(timeline_csv(experiment.executions)),
                    experiment_slices(experiment),
                    blocks,
                    check_events("x", dump),
                )
            )
            assert isinstance(dump, LongETDump) == (len(found) % 2 == 0)
            monkeypatch.setattr(reader, "_SHORT_BYTES", 0)
            monkeypatch.setattr(reader, "_PIECE_EVENTS", 7)
        monkeypatch.undo()
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert (found[0][3].level, found[2][3].level) == ("ok", "damaged")


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: it ended in an IndexError, as a fault of etprof's own."""
    dump = long(tmp_path / "x.etdump", record(40).data, monkeypatch, 7)
    executions = examine_executions(dump)
    for other in (record(30), record(60)):
        changed = long(tmp_path / "y.etdump", other.data, monkeypatch, 7)
        with pytest.raises(InputFileError, match="changed while it was read"):
            split_operators([replace(executions, dump=changed)])


def test_a_file_written_to_between_two_pieces_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: pieces of two recordings of one length made one table of both."""
    path = tmp_path / "x.etdump"
    dump = long(path, record(40).data, monkeypatch, 7)
    pieces = dump.pieces()
    next(pieces)
    with path.open("r+b") as stream:
        stream.write(path.read_bytes())
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputFileError, match=r"x\.etdump: changed while it was read"):
        next(pieces)


class InNanoseconds(LongETDump):
    """A recording so many times over, a thousand times slower, of which no duration comes again."""

    def __init__(self, dump: ETDump, copies: int) -> None:
        object.__setattr__(self, "dump", dump)
        object.__setattr__(self, "copies", copies)

    def pieces(self) -> Iterator[ETDump]:
        dump: ETDump = self.dump  # type: ignore[attr-defined]
        first = int(dump.profile.start_time.min())
        start, end = (
            1000 * (each.astype(np.int64) - first)
            for each in (dump.profile.start_time, dump.profile.end_time)
        )
        roles = examine_events(dump).roles
        operators = (roles == Role.DELEGATED) | (roles == Role.KERNEL)
        for copy in range(self.copies):  # type: ignore[attr-defined]
            less = np.random.default_rng(copy).uniform(0, 0.1, end.size) * (end - start) * operators
            later = copy * (int(end.max()) + 1)
            started, ended = (
                (start + later).astype(np.uint64),
                (end - less + later).astype(np.uint64),
            )
            changed = replace(dump.profile, start_time=started, end_time=ended)
            yield replace(dump, profile=changed)


def test_durations_that_never_come_again_are_counted_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N17: each call of a new duration took up to 87 bytes; what is kept of an execution, 40."""
    whole, peaks = load_etdump(record(200).data), []
    for copies in (10, 80):
        dump = InNanoseconds(whole, copies)
        monkeypatch.setattr(operators, "_MOST_DURATIONS", 10**9)
        exact = outcome(dump)
        monkeypatch.setattr(operators, "_MOST_DURATIONS", 2000)
        tracemalloc.start()
        found = outcome(dump)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert isinstance(exact, OperatorSplit)
        assert isinstance(found, OperatorSplit)
        for one, other in zip(found.rows, exact.rows, strict=True):
            assert one.times is not None
            assert other.times is not None
            for name in ("total_ns", "minimum_ns", "maximum_ns"):
                assert getattr(one.times, name) == getattr(other.times, name)
            assert one.times.median_ns != other.times.median_ns, "or nothing was rounded"
            assert one.times.median_ns == pytest.approx(other.times.median_ns, rel=1e-3)
            deviations = one.times.standard_deviation_ns, other.times.standard_deviation_ns
            assert deviations[0] == pytest.approx(deviations[1], rel=1e-3)
    assert peaks[1] - peaks[0] < 40 * 70 * 200


def test_rounded_durations_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """N17: how a file is cut says nothing of how coarse the steps are."""
    monkeypatch.setattr(operators, "_MOST_DURATIONS", 300)
    monkeypatch.setattr(operators, "_LEAST_DURATIONS", 1)
    (whole,) = InNanoseconds(load_etdump(record(200).data), 1).pieces()
    found = outcome(whole)
    assert isinstance(found, OperatorSplit)
    for rows in (1, 50, 700):
        assert outcome(InPieces(whole, rows)) == found


PEAK = """
import sys
from etprof.cli import main
assert main(["analyze", sys.argv[1], "--time-scale", "ns", "--json"]) == 0
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_ten_times_the_inferences_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: 1.6 GB for 7 M events, 230 bytes each; then 87 for each call of another duration."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from etdump_samples import repeat_blocks

    peaks_mb = []
    for copies in (200, 2000):
        path = tmp_path / "x.etdump"
        repeat_blocks(record(48).data, copies, path)
        done = run_command([sys.executable, "-c", PEAK, str(path)])
        assert done.exit_code == 0, done.stderr
        peaks_mb.append(int(done.stderr.split()[-1]))
    assert peaks_mb[1] < peaks_mb[0] + 40
