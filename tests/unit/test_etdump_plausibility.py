"""N16: no wrong time stamp makes a wrong split, a share outside 0 to 100 %, or a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import etprof
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.executions import (
    ImplausibleETDumpError,
    examine_executions,
    keep_near_median,
)
from etprof.analysis.split.operators import OperatorSplit, split_operators
from etprof.base.errors import InputFileError
from etprof.cli import main
from etprof.etdump.columns import ProfileColumns
from etprof.etdump.plausibility import Role, examine_events
from etprof.etdump.reader import ETDump, load_etdump
from etprof.history.ingest import read_run_directory
from etprof.run.load import Run
from etprof.run.validation import validate_run, worst_level
from etprof.views.events import timeline_csv
from tests.etdump_writer import etdump, event, event_block, profile_event, write_etdump
from tests.known_etdumps import timed
from tests.known_runs import on_off_run, write_run
from tests.recorded_etdumps import CHANGES, Recording, S, changed, record

CLOCKS: Final[Mapping[str, Mapping[str, int]]] = {
    "a day after boot": {"start": 10**14},
    "after a reset": {"start": 10**6},
    "32 bits, wrapping in an execution": {"start": 2**32 - 1_502_000, "bits": 32},
}
CASES: Final = [
    (clock, change)
    for clock in CLOCKS
    for change in CHANGES
    # Where a clock begins again, 0 is a moment like others.
    if not ("32 bits" in clock and change == "zero")
]


@cache
def recording(clock: str) -> Recording:
    return record(**CLOCKS[clock])


def split_of(dump: ETDump) -> OperatorSplit:
    return split_operators(keep_near_median([examine_executions(dump)]))


def intervals(dump: ETDump) -> dict[str, tuple[float, float]]:
    """95 % interval of each part's mean over the executions of a sound file."""
    (executions,) = keep_near_median([examine_executions(dump)])
    ((_, events, number, _),) = executions.pieces()
    times = timed(events)
    series = {
        name: times.beyond[
            (number[events.containers] >= 0) & (events.roles[events.containers] == role)
        ]
        for name, role in (
            ("Delegate overhead", Role.DELEGATE_CALL),
            ("Operator dispatch", Role.OPERATOR_CALL),
            ("Program execution", Role.EXECUTE),
        )
    }
    # What may be rounded off the operators of a call, a microsecond each, is no overhead (F-d).
    calls, delegated = series["Delegate overhead"], (events.roles == Role.DELEGATED) & (number >= 0)
    rounded = np.minimum(calls, 1000 * np.count_nonzero(delegated) / calls.size)
    series["Rounding of operators' times"] = rounded
    series["Delegate overhead"] = calls - rounded
    series["Method::execute"] = times.duration[(number >= 0) & (events.roles == Role.EXECUTE)]
    for role, names in (
        (Role.DELEGATED, dump.profile.delegate_debug_id_str_id),
        (Role.KERNEL, dump.profile.name_id),
    ):
        inside = (number >= 0) & (events.roles == role)
        for name_id in np.unique(names[inside]):
            series[dump.names[name_id]] = times.duration[inside & (names == name_id)]
    found = {}
    for name, values in series.items():
        reach = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5 + 1
        found[name] = (float(values.mean()) - reach, float(values.mean()) + reach)
    return found


def means(split: OperatorSplit) -> dict[str, float]:
    whole = {"Method::execute": timed(split).execute.mean_ns}
    return whole | {part.label: times.mean_ns for part, times in split.parts}


def check_honest(split: OperatorSplit, limits: Mapping[str, tuple[float, float]]) -> None:
    """What a split that is shown must be."""
    assert all(0 <= times.share <= 1 for _, times in split.parts)
    assert sum(times.total_ns for _, times in split.parts) == timed(split).execute.total_ns
    assert means(split).keys() == limits.keys()
    for name, mean in means(split).items():
        low, high = limits[name]
        assert low <= mean <= high, name
    left = split.left_out
    assert split.executions == left.recorded - left.impossible - left.disturbed


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_sound_file_has_no_impossible_event(clock: str) -> None:
    """N16"""
    dump = load_etdump(recording(clock).data)
    assert not examine_events(dump).impossible.any()
    split = split_of(dump)
    assert (split.left_out.recorded, split.left_out.impossible, split.executions) == (24, 0, 24)
    # AND a clock of 32 bits tells the same times
    assert means(split) == means(split_of(load_etdump(recording("after a reset").data)))


@pytest.mark.slow
@pytest.mark.parametrize(("clock", "change"), CASES)
def test_one_changed_stamp_never_makes_a_wrong_split(clock: str, change: str) -> None:
    """N16: every event in turn, its start and its end."""
    dump = load_etdump(recording(clock).data)
    limits = intervals(dump)
    left_out = 0
    for row in range(len(dump.profile.name_id)):
        for column in ("start_time", "end_time"):
            split = split_of(changed(dump, row, column, CHANGES[change]))
            check_honest(split, limits)
            left_out += split.executions < 24
    # AND what would be seen in the split is left out, not averaged away
    if change not in {"-1 ns", "mod 2^32"} and clock == "a day after boot":
        operators_and_calls = 24 * 6 * 2
        assert left_out >= operators_and_calls


@pytest.mark.parametrize("seed", range(40))
def test_several_changed_stamps_are_left_out_or_refused(seed: int) -> None:
    """N16: up to a third of the stamps are noise."""
    dump = load_etdump(recording("a day after boot").data)
    limits = intervals(dump)
    random = np.random.default_rng(seed)
    rows = len(dump.profile.name_id)
    for row in random.choice(rows, size=random.integers(2, rows // 3), replace=False):
        column = str(random.choice(["start_time", "end_time"]))
        dump = changed(dump, int(row), column, list(CHANGES.values())[random.integers(1, 9)])
    try:
        split = split_of(dump)
    except ImplausibleETDumpError:
        return
    check_honest(split, {name: (low * 0.97, high * 1.03) for name, (low, high) in limits.items()})


def rows_of(dump: ETDump, role: Role) -> list[int]:
    return [int(row) for row in np.flatnonzero(examine_events(dump).roles == role)]


def moved(dump: ETDump, rows: list[int], ticks: int) -> ETDump:
    """The same file with some events whole at another time."""
    for row in rows:
        for column in ("start_time", "end_time"):
            dump = changed(dump, row, column, lambda stamp: stamp + ticks)
    return dump


def marked(dump: ETDump) -> set[int]:
    return {int(row) for row in np.flatnonzero(examine_events(dump).impossible)}


@pytest.mark.parametrize("role", [Role.DELEGATED, Role.KERNEL, Role.DELEGATE_CALL])
@pytest.mark.parametrize("ticks", [-150_000, 150_000])
def test_what_is_not_inside_its_container_is_marked(role: Role, ticks: int) -> None:
    """N16: though it takes no longer than it should."""
    dump = load_etdump(recording("a day after boot").data)
    row = rows_of(dump, role)[9]
    assert row in marked(moved(dump, [row], ticks))
    assert np.count_nonzero(~examine_events(moved(dump, [row], ticks)).execution_possible) == 1


def test_neighbours_that_overlap_are_both_marked() -> None:
    """N16: a whole execution that begins before the one before it ended."""
    dump = load_etdump(recording("a day after boot").data)
    executes = rows_of(dump, Role.EXECUTE)
    inside = list(range(executes[7] + 1, executes[8] + 1))
    assert marked(moved(dump, inside, -50_000)) == {executes[7], executes[8]}


def test_calls_of_one_execution_do_not_overlap() -> None:
    """N16"""
    dump = load_etdump(recording("a day after boot").data)
    call = rows_of(dump, Role.OPERATOR_CALL)[9]
    kernel, delegate_call = call - 1, call - 2
    assert marked(moved(dump, [kernel, call], -20_000)) == {delegate_call, call}


def test_kernels_of_one_call_do_not_overlap() -> None:
    """N16"""
    kernels = [profile_event(b"native_call_add.out", start_time=t, end_time=t + 9) for t in (1, 5)]
    call = profile_event(b"OPERATOR_CALL", start_time=0, end_time=90)
    whole = profile_event(b"Method::execute", start_time=0, end_time=100)
    events = [event(profile=each) for each in (*kernels, call, whole)]
    written = write_etdump(etdump([event_block(b"Execute", events)]))
    assert marked(load_etdump(bytes(written.data))) == {0, 1}


def test_impossible_load_events_are_not_known() -> None:
    """N16: load stands before the first inference, which loses its figure too."""
    dump = load_etdump(recording("a day after boot").data)
    init, load = rows_of(dump, Role.LOAD)
    late = split_of(changed(dump, init, "end_time", lambda stamp: stamp + 10**7))
    assert (timed(late).load_ns, late.left_out.impossible) == ({}, 0)
    first = rows_of(dump, Role.EXECUTE)[0]
    before_load = int(dump.profile.start_time[load]) - 1
    early = split_of(changed(dump, first, "start_time", lambda _: before_load))
    assert timed(early).first_execute_ns is None
    assert early.executions == 24


def test_two_wrong_stamps_make_no_clock_of_32_bits() -> None:
    """N16: an end before its start is a wrap where the other events fit in 32 bits too."""
    dump = load_etdump(recording("a day after boot").data)
    row = rows_of(dump, Role.KERNEL)[9]
    small = changed(dump, row, "start_time", lambda _: 100)
    assert marked(changed(small, row, "end_time", lambda _: 50)) == {row}


def test_a_file_of_impossible_executions_is_refused() -> None:
    """N16: with the count, the first place and the way out."""
    data = record(10)
    dump = load_etdump(data.data)
    executes = np.flatnonzero(examine_events(dump).roles == Role.EXECUTE)
    for row in executes[5:9:2].tolist():
        dump = changed(dump, row, "end_time", CHANGES["+2^63"])
    with pytest.raises(ImplausibleETDumpError) as caught:
        split_of(dump)
    assert str(caught.value) == (
        "2 of 13 executions hold time stamps that cannot be so: 2 of 80 events end before they "
        "start, reach out of what holds them, or overlap; the first is event 5 of event block 6; "
        "pull the file again, or run the model again"
    )


def test_few_executions_are_told_to_be_few(tmp_path: Path) -> None:
    """N16: of three, nobody can say which one was disturbed."""
    path = tmp_path / "x.etdump"
    path.write_bytes(record(3).data)
    assert any("3 executions are too few to tell" in note for note in etprof.load_run(path).notes)
    path.write_bytes(record(5).data)
    assert not any("too few" in note for note in etprof.load_run(path).notes)


def test_interruptions_are_left_out_and_said(tmp_path: Path) -> None:
    """N16: a second in the last execution alone contradicts nothing in the file."""
    sound = record()
    path = tmp_path / "x.etdump"
    last = len(sound.events) - 1
    end = int(load_etdump(sound.data).profile.end_time[last])
    path.write_bytes(sound.with_stamp(last, "end_time", end + S))
    analysis = analyze_run(Run.load(path))
    (experiment,) = analysis.experiments
    assert (experiment.split.executions, experiment.split.left_out.disturbed) == (23, 1)
    assert any(
        "1 of 24 executions is left out of the per-operator breakdown" in n for n in analysis.notes
    )


def test_executions_are_disturbed_however_many_are() -> None:
    """Where more than a quarter were disturbed, three interquartile ranges left none of them out."""
    executions = examine_executions(load_etdump(record().data))
    assert executions.duration is not None
    slow = np.flatnonzero(executions.selected)[::2][:10]
    duration = executions.duration.copy()
    duration[slow] *= 3
    (kept,) = keep_near_median([replace(executions, duration=duration)])
    assert np.flatnonzero(executions.selected & ~kept.selected).tolist() == slow.tolist()
    # AND where most vary, all of them are what the machine is like
    spread = executions.duration.copy()
    spread[executions.selected] *= np.linspace(1, 4, executions.count).round(1).astype(np.int64)
    (kept,) = keep_near_median([replace(executions, duration=spread)])
    assert kept.count == executions.count


def damaged(folder: Path, *, rows: int = 1, name: str = "x.etdump") -> Path:
    """A file of which `rows` executions have an operator that takes a second too long."""
    sound = record()
    dump = load_etdump(sound.data)
    data = bytearray(sound.data)
    operators = np.flatnonzero(dump.profile.delegate_debug_id_str_id >= 0)[10::2][:rows]
    for row in operators.tolist():
        at = sound.written.field(sound.events[row], 7)
        data[at : at + 8] = (int(dump.profile.end_time[row]) + S).to_bytes(8, "little")
    path = folder / name
    path.write_bytes(data)
    return path


def test_every_page_says_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N16: terminal, JSON, Markdown, HTML, CSV and API."""
    monkeypatch.setenv("COLUMNS", "250")
    path, said = damaged(tmp_path), "1 of 24 executions is left out everywhere"
    assert main(["analyze", str(path), "--out", str(tmp_path / "out"), "--full"]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert "24 inferences recorded, 23 of them in the per-operator breakdown" in printed
    for name in ("report.md", "report.html"):
        assert said in (tmp_path / "out" / name).read_text()
    summary = json.loads((tmp_path / "out" / "analysis_summary.json").read_text())
    assert summary["experiments"]["x"]["left_out"] == {
        "recorded": 24, "impossible": 1, "disturbed": 0, "disturbed_launches": [],
    }  # fmt: skip
    assert any(said in note for note in summary["notes"])
    lines = (tmp_path / "out" / "x_timeline.csv").read_text().splitlines()[1:]
    assert len(lines) == 2 + 26 * 6
    assert max(int(line.split(",")[-2]) for line in lines) < S
    run = etprof.load_run(path)
    assert any(said in note for note in run.notes)
    longest = max(event.raw_ns.max() for block in run.event_blocks() for event in block.events)
    assert longest < S


def test_refused_files_end_every_command_with_the_same_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N16: exit code 4, and no number."""
    path, sound = damaged(tmp_path, rows=9), damaged(tmp_path, rows=0, name="sound.etdump")
    commands = (
        ["analyze", str(path)], ["analyze", str(path), "--json"],
        ["report", str(path), "--out", str(tmp_path / "out")],
        ["compare", str(sound), str(path)], ["compare", str(path), str(sound)],
    )  # fmt: skip
    for command in commands:
        assert main(command) == 4, command
        printed = capsys.readouterr()
        assert printed.out == ""
        assert f"{path}: 9 of 27 executions hold time stamps that cannot be so" in printed.err
    with pytest.raises(InputFileError, match="9 of 27 executions"):
        etprof.load_run(path)


def run_with(folder: Path, data: bytes) -> Path:
    """A run directory of which one ETDump holds `data`."""
    run = write_run(folder, on_off_run())
    next(run.glob("android_off/*.etdump")).write_bytes(data)
    return run


def test_validation_calls_impossible_events_damage(tmp_path: Path) -> None:
    """N16: also below the bound from which a file is refused."""
    sound = run_with(tmp_path / "sound", damaged(tmp_path, rows=0).read_bytes())
    assert worst_level(validate_run(sound)) != "damaged"
    run = run_with(tmp_path / "run", damaged(tmp_path).read_bytes())
    (found,) = (entry for entry in validate_run(run) if entry.level == "damaged")
    assert "1 of 164 events cannot be so, in 1 of 27 executions; the first is" in found.text
    assert main(["validate", str(run)]) == 4


def test_a_file_that_cannot_be_so_costs_its_own_experiment_alone(tmp_path: Path) -> None:
    """N16, I3: it could be read, so it was taken, and ended the whole report and all rows."""
    run = run_with(tmp_path / "run", damaged(tmp_path, rows=9).read_bytes())
    assert main(["report", str(run)]) == 0
    analysis = analyze_run(Run.load(run))
    assert [each.name for each in analysis.experiments] == ["android_sme2"]
    (off,) = analysis.loaded.others
    assert off.damage is not None
    assert "9 of 27 executions" in str(off.damage)
    assert any(str(off.damage) in note for note in analysis.notes)
    rows = {row.experiment: row for row in read_run_directory(run)}
    assert rows["android_sme2"].categories
    assert rows["android_sme2"].failure is None
    assert str(off.damage) in (rows["android_off"].failure or "")
    assert rows["android_off"].categories == {}
    for path in run.glob("android_sme2/*.etdump"):
        path.write_bytes(damaged(tmp_path, rows=9).read_bytes())
    assert main(["report", str(run)]) == 4, "nothing is left to report"


def test_comparisons_say_which_side_lost_executions(tmp_path: Path) -> None:
    """N16"""
    run = etprof.load_run(run_with(tmp_path / "run", damaged(tmp_path).read_bytes()))
    off, on = run.experiment("android_off"), run.experiment("android_sme2")
    notes = etprof.compare(off, on).comparison.notes
    assert any("android_off: 1 of 24 executions is left out" in note for note in notes)


def delegate_on_another_clock(scale: int, start: int = 0) -> ETDump:
    """A delegate that counts from `start` on its own clock, `scale` of its ticks a nanosecond."""
    blocks = []
    for number in range(6):
        at = S + number * 10**6
        inside = [
            profile_event(
                start_time=start, end_time=start + 5_000 * scale, instruction_id=0,
                delegate_debug_id_str=f"Add (ND, F32) #{i}".encode(),
            )
            for i in range(2)
        ]  # fmt: skip
        call = profile_event(b"DELEGATE_CALL", start_time=at, end_time=at + 11_000)
        whole = profile_event(b"Method::execute", start_time=at, end_time=at + 12_000)
        blocks.append(event_block(b"Execute", [event(profile=p) for p in (*inside, call, whole)]))
    return load_etdump(bytes(write_etdump(etdump(blocks)).data))


def test_a_delegate_may_have_a_clock_of_its_own_but_no_other_unit() -> None:
    """N16: sums are what tells; where it began does not."""
    split = split_of(delegate_on_another_clock(1))
    assert (split.left_out.impossible, [timed(row).mean_ns for row in split.rows]) == (
        0,
        [5000, 5000],
    )
    with pytest.raises(ImplausibleETDumpError, match="6 of 6 executions"):
        split_of(delegate_on_another_clock(2))


def test_a_sum_that_cannot_be_is_refused_whatever_let_it_pass() -> None:
    """N16: the guard at the split itself."""
    dump = load_etdump(recording("a day after boot").data)
    executions = examine_executions(dump)
    known, duration = executions.events, executions.duration
    assert known is not None
    assert duration is not None
    times = timed(known)
    wrong = [
        (replace(times, duration=times.duration * 1000), duration),
        (replace(times, beyond=times.beyond * -1), duration),
        (times, duration * 0),
    ]
    for each, whole in wrong:
        events = replace(known, times=each)
        with pytest.raises(ImplausibleETDumpError, match="which cannot be"):
            split_operators([replace(executions, events=events, duration=whole)])


def test_wraps_are_undone_in_durations_everywhere(tmp_path: Path) -> None:
    """N16: -4.29e9 ns in `event_blocks()` and in the timeline."""
    path = tmp_path / "x.etdump"
    path.write_bytes(recording("32 bits, wrapping in an execution").data)
    dump = load_etdump(path)
    wrapped = dump.profile.end_time < dump.profile.start_time
    assert wrapped.any()
    for block in etprof.load_run(path).event_blocks():
        assert all(event.raw_ns.min() >= 0 and event.raw_ns.max() < S for event in block.events)
    text = "".join(timeline_csv(examine_executions(dump)))
    rows = [line.split(",") for line in text.splitlines()[1:]]
    assert len(rows) == len(wrapped)
    assert all(0 <= int(row[-2]) < S for row in rows)


def test_the_check_is_linear_and_cheap() -> None:
    """N16: 100 000 executions' worth of events in well under a second."""
    import time

    dump = load_etdump(recording("a day after boot").data)
    copies = 1000
    profile = ProfileColumns(
        **{name: np.tile(getattr(dump.profile, name), copies) for name in ProfileColumns.__slots__}
    )
    long = replace(dump, profile=profile)
    start = time.process_time()
    events = examine_events(long)
    assert time.process_time() - start < 1
    assert events.roles.size == copies * len(dump.profile.name_id)
