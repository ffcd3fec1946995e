"""Which runs a store hands out and in which order, and the rows of a matrix, worked out by hand."""

from __future__ import annotations

import io
import json
import math
import tarfile
import zlib
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.dialects import sqlite

from etprof.base.errors import InputFileError, UsageError
from etprof.base.limits import MOST_LAUNCHES
from etprof.bench import archives, cluster
from etprof.bench.combinations import expand
from etprof.bench.execution import UnitOutcome, describe_error
from etprof.bench.matrix import Matrix, _endless, parse_matrix
from etprof.bench.pool import Task, _by_device
from etprof.bench.prompt_lengths import break_even_length
from etprof.bench.rows import BenchRow, _effect_of
from etprof.bench.summary import summary_table
from etprof.dashboard import judging, queries
from etprof.dashboard.addresses import ServedLinks, make_address, pages
from etprof.dashboard.views import run as run_page
from etprof.dashboard.visit import Catalogue, NoSuchPageError, Visit, find_run
from etprof.history import columns, selection
from etprof.history.connection import DamagedValueError
from etprof.history.ingest import metric_of
from etprof.history.schema import Alarm, Run, full_hash
from tests.known_history import pin
from tests.run_rows import START, add, later, row_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from etprof.bench.combinations import Unit
    from etprof.history.store import Store


@pytest.fixture(scope="module", autouse=True)
def page_modules() -> None:
    """Loads the modules of all pages once."""
    pages()


def visit_of(view: str, catalogue: Catalogue) -> Visit:
    return Visit(make_address(view, {}), ServedLinks(), catalogue)


def test_the_newest_pinned_run_that_is_another_is_compared_with(store: Store) -> None:
    numbers = add(store, *(row_of(f"{i}", **later(i)) for i in range(3)))
    for name, number in (("b", numbers[0]), ("a", numbers[2])):
        pin(store, name, number)
    with store.session() as session:
        newest, middle = (session.get_one(Run, number) for number in (numbers[2], numbers[1]))
        pinned = queries.load_baselines(session, [newest.series, "none"])
        assert [baseline.name for baseline in pinned[newest.series]] == ["a", "b"]
        names = [judging._pinned_name(pinned, stored) for stored in (newest, middle)]
        assert [*names, judging._pinned_name({}, newest)] == ["b", "a", None]
        catalogue = Catalogue(session)
        references = judging.Judge(catalogue, "latency_ns").references([newest, middle])
    assert {n: (e.run_id, e.change["against"]) for n, e in references.items()} == {
        numbers[2]: (numbers[0], "baseline b"),
        numbers[1]: (numbers[2], "baseline a"),
    }


def test_runs_without_a_pinned_one_are_held_against_the_seven_before(store: Store) -> None:
    numbers = add(store, *(row_of(f"{i}", **later(i)) for i in range(9)))
    with store.session() as session:
        runs = queries.load_runs(session, [numbers[i] for i in (0, 1, 2, 8)])
        references = judging.Judge(Catalogue(session), "latency_ns").references(runs.values())
    assert {n: (e.run_id, e.change["against"]) for n, e in references.items()} == {
        numbers[1]: (numbers[0], "the run before"),
        numbers[2]: (numbers[1], "the 2 runs before"),
        numbers[8]: (numbers[7], "the 7 runs before"),
    }
    assert references[numbers[1]].compare_address.values == {
        "baseline": str(numbers[0]), "candidate": str(numbers[1]),
    }  # fmt: skip


def test_a_check_s_alarm_counts_for_the_later_of_two_runs_of_a_series(store: Store) -> None:
    first, second, third = add(store, *(row_of(f"{i}", **later(i)) for i in range(3)))
    alarms = [
        Alarm(run_id=number, metric="latency_ns", raised_at=START) for number in (second, third)
    ]
    store.write(lambda session: session.add_all(alarms))
    with store.session() as session:
        judge = judging.Judge(Catalogue(session), "latency_ns")
        one, two, three = (session.get_one(Run, number) for number in (first, second, third))
        views = [judge.pair(*pair, "it") for pair in ((one, two), (two, one), (two, three))]
        assert judge.pair(one, None, "it") is None
        assert judge.pair(None, one, "it") is None
    assert [view and (view["word"], view["colour"]) for view in views] == [
        ("regression", "worse"),
        ("inconclusive", "same"),
        ("inconclusive", "same"),  # not of the level that the third is held against
    ]


def test_sparks_have_the_newest_values_of_a_branch_oldest_first(store: Store) -> None:
    branches = ["main", "main", "wip", "main", "wip"]
    runs = [
        row_of(f"{i}", 1e6 * (i + 1), git_branch=branch, **later(i))
        for i, branch in enumerate(branches)
    ]
    add(store, *runs, row_of("off the record", None, **later(9)))
    with store.session() as session:
        series = queries.list_series(session)
        name = series[0].run.series
        for branch, limit, values in (
            ("", 3, [3e6, 4e6, 5e6]), ("main", 9, [1e6, 2e6, 4e6]), ("wip", 1, [5e6])
        ):  # fmt: skip
            newest = queries.load_newest_values(
                session, series, "latency_ns", branch=branch, limit=limit
            )
            assert newest == {name: values}
        assert queries.list_branches(session, 1) == ["main"]
        assert queries.list_branches(session, 2) == ["main", "wip"]
        trend_points = queries.load_trend(session, name, "latency_ns", branch="", limit=3)
        assert [(p.value, p.failure) for p in trend_points] == [
            (4e6, None), (5e6, None), (None, "it crashed")
        ]  # fmt: skip
        assert queries.load_trend(session, name, "load_ns", branch="wip", limit=9) == []


def test_of_runs_of_one_moment_the_one_that_was_added_before_is_before(store: Store) -> None:
    rows = [row_of("a"), row_of("b"), row_of("c"), row_of("d", None, **later(1))]
    rows += [row_of("e", **later(2)), row_of("f", git_branch=None), row_of("g", git_branch=None)]
    numbers = add(store, *rows)
    a, b, c, d, e, f, g = numbers
    with store.session() as session:
        runs = queries.load_runs(session, numbers).values()
        assert queries.find_runs_before(session, runs) == {b: a, c: b, d: c, e: c, g: f}


def test_runs_are_found_by_the_beginning_of_their_key_and_by_number(store: Store) -> None:
    first, second, third = add(store, row_of("a"), row_of("b"), row_of("c"))
    keys = {first: full_hash("a"), second: full_hash("b"), third: full_hash("c")}
    with store.session() as session:
        assert queries.list_keys(session, first, 2) == {first: keys[first], second: keys[second]}
        assert queries.list_keys(session, second, 9) == {second: keys[second], third: keys[third]}
        stored = queries.find_by_key(session, keys[second][:16])
        assert stored is not None
        assert stored.id == second
        assert queries.find_by_key(session, "0" * 16) is None
        catalogue = Catalogue(session)
        assert queries.count_runs(session) == (3, third)
        assert catalogue.link_of(second) == keys[second][:16]
        assert catalogue.link_of(999_999) == "999999"
        visit = visit_of("run", catalogue)
        assert find_run(visit, keys[third][:16]).id == third
        assert find_run(visit, f"{second:09}").id == second
        for text in (f"{second:010}", "0", "x", "٢", keys[third][:15], ""):
            with pytest.raises(NoSuchPageError, match="no run"):
                find_run(visit, text)


def test_a_store_is_read_again_when_it_has_changed_or_too_much_is_kept(store: Store) -> None:
    add(store, row_of("a"), row_of("b", sme_mode="sme2", experiment="on"))
    cache: dict[Any, Any] = {}
    with store.session() as session:
        catalogue = Catalogue(session, cache=cache)
        assert catalogue.cached(lambda: 1, "x") == catalogue.cached(lambda: 2, "x") == 1
        # Two series with one metric that is checked, for a step and for a drift.
        assert catalogue.family == 4
        assert catalogue.metrics == ["latency_ns"]
        cache.clear()
        for number in range(500):
            catalogue.cached(lambda: None, "n", number)
        assert len(cache) == 500
        catalogue.cached(lambda: None, "one more")
        assert len(cache) == 1
    add(store, row_of("c", **later(1)))
    with store.session() as session:
        assert Catalogue(session, cache=cache).cached(lambda: 3, "one more") == 3


def test_sides_of_a_run_are_of_the_same_program_and_moment(store: Store) -> None:
    alike: dict[str, Any] = {"run_name": "r", "run_path": "/r", "revision": "1" * 16}
    modes = [("a", "off"), ("b", "sme2"), ("c", "sme1"), ("d", "off")]
    rows = [row_of(key, sme_mode=mode, experiment=mode + key, **alike) for key, mode in modes]
    rows += [row_of("e", sme_mode="sme2", experiment="e", **{**alike, "run_name": "s"})]
    rows += [row_of("f", None, sme_mode="auto", experiment="f", **alike)]
    a, b, c, *_ = add(store, *rows)
    with store.session() as session:
        beside = queries.find_sme_sides(session, session.get_one(Run, a))
        assert [side.id for side in beside] == [c, b]


def test_series_stand_in_the_order_of_thread_counts_and_a_config_has_all_sme_modes(
    store: Store,
) -> None:
    ways = [(10, "off"), (2, "sme2"), (2, "off"), (None, "off")]
    rows = [
        row_of(f"{i}", threads=threads, sme_mode=mode, experiment=f"e{i}")
        for i, (threads, mode) in enumerate(ways)
    ]
    add(store, *rows)
    with store.session() as session:
        series = queries.list_series(session)
        assert [(e.run.threads, e.run.sme_mode) for e in series] == [
            (None, "off"), (2, "off"), (2, "sme2"), (10, "off")
        ]  # fmt: skip
        keys = [queries.config_key(entry.run) for entry in series]
        assert keys[1] == keys[2] == series[1].config
        assert (len({*keys}), {len(key) for key in keys}) == (3, {16})
        assert queries.list_series(session, model="none") == []


def test_a_run_may_be_set_beside_the_one_before_its_sides_and_baselines(store: Store) -> None:
    alike: dict[str, Any] = {"run_name": "r", "run_path": "/r", **later(1)}
    before, off, on = add(
        store, row_of("a"), row_of("b", **alike),
        row_of("c", sme_mode="sme2", experiment="on", **alike),
    )  # fmt: skip
    pin(store, "old", before)
    pin(store, "it", off)
    with store.session() as session:
        visit = visit_of("run", Catalogue(session))
        runs = queries.load_runs(session, [off, on])
        pairs = {
            number: [
                (label, address["baseline"], address["candidate"])
                for label, address in run_page._comparisons(visit, runs[number], start)
            ]
            for number, start in ((off, before), (on, None))
        }
    assert pairs[off] == [
        ("the run before", str(before), str(off)),
        ("SME2 of the same run", str(off), str(on)),
        ("baseline old", str(before), str(off)),
    ]
    assert pairs[on] == [("SME off of the same run", str(off), str(on))]
    assert run_page._comparisons(visit, row_of("x", None), 1) == []


@pytest.mark.parametrize(
    ("year", "is_taken"), [(1969, False), (1970, True), (2026, True), (9000, True), (9001, False)]
)
def test_a_moment_is_of_a_year_that_clocks_have(year: int, is_taken: bool) -> None:
    adapter = TypeAdapter[Any](columns.Moment)
    text = f"{year}-06-01T00:00:00+00:00"
    if is_taken:
        assert adapter.validate_python(text).year == year
    else:
        with pytest.raises(ValidationError, match="not a year from 1970 to 9000"):
            adapter.validate_python(text)


def test_compressed_samples_may_be_as_long_as_their_limit() -> None:
    packed = zlib.compress(b"x" * 100)
    assert columns.decompress(packed, 100) == b"x" * 100
    for data, most in ((packed, 99), (packed[:-1], 100), (b"?", 100)):
        with pytest.raises(DamagedValueError):
            columns.decompress(data, most)


def test_samples_come_back_as_they_were() -> None:
    column, dialect = columns.Samples(), sqlite.dialect()
    bound = column.process_bind_param([1.5, -2.0], dialect)
    assert bound is not None
    assert zlib.decompress(bound) == np.array([1.5, -2.0], "<f8").tobytes()
    read = column.result_processor(dialect, None)
    assert (read(bound), read(None), column.process_bind_param([], dialect)) == (
        (1.5, -2.0), (), None,
    )  # fmt: skip
    for damaged in (
        b"x" * 12,
        np.array([math.nan], "<f8").tobytes(),
        np.array([math.inf]).tobytes(),
    ):
        with pytest.raises(DamagedValueError):
            read(zlib.compress(damaged))


def test_a_value_of_another_kind_is_damage() -> None:
    dialect = sqlite.dialect()
    for column, value in (
        (columns.CheckedInteger(), True), (columns.CheckedInteger(), 1.0),
        (columns.CheckedFloat(), math.inf), (columns.CheckedFloat(), "1"),
        (columns.CheckedText(), 3), (columns.Samples(), "text"),
        (columns.PackedObject(), zlib.compress(b"[1]")), (columns.PackedObject(), zlib.compress(b"{")),
    ):  # fmt: skip
        with pytest.raises(DamagedValueError):
            column.result_processor(dialect, None)(value)
    read = [
        (columns.CheckedFloat(), 2),
        (columns.CheckedInteger(), 2),
        (columns.CheckedText(), "a"),
    ]
    assert [column.result_processor(dialect, None)(value) for column, value in read] == [2, 2, "a"]


def test_moments_are_kept_in_utc() -> None:
    column, dialect = columns.UtcDateTime(), sqlite.dialect()
    east = datetime(2026, 9, 1, 5, 0, tzinfo=timezone(timedelta(hours=2)))
    stored = column.process_bind_param(east, dialect)
    assert (stored, column.process_bind_param(None, dialect)) == (datetime(2026, 9, 1, 3, 0), None)  # noqa: DTZ001
    assert column.process_result_value(stored, dialect) == START
    with pytest.raises(ValueError, match="no time zone"):
        column.process_bind_param(stored, dialect)


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("100", 100), ("007", 7)])
def test_a_window_has_up_to_a_hundred_runs(text: str, size: int) -> None:
    assert selection.window_size(f"window:{text}") == size


@pytest.mark.parametrize("text", ["0", "101", "-1", "", "x", "1" * 19, "0" * 18 + "1"])
def test_no_other_window_is_one(text: str) -> None:
    with pytest.raises(UsageError, match="write window:N with N from 1 to 100"):
        selection.window_size(f"window:{text}")


def test_runs_are_chosen_by_filters_and_the_newest_come_first(store: Store) -> None:
    rows = [row_of("a", git_commit="ab12"), row_of("b", git_commit="ab_2", **later(2))]
    rows += [row_of("c", git_commit="ab12", model="other", **later(1))]
    first, second, third = add(store, *rows)
    with store.session() as session:

        def ids_of(limit: int = 9, **filters: str) -> list[int]:
            return [row.id for row in selection.newest_runs(session, filters, limit)]

        assert ids_of() == [second, third, first]
        assert ids_of(2) == [second, third]
        assert (ids_of(commit="ab1"), ids_of(commit="ab_")) == ([third, first], [second])
        assert (ids_of(model="net"), ids_of(model="ne")) == ([second, first], [])
        newest = selection.newest_of_each_series(session, {})
        assert [row.id for row in newest] == [second, third]
        assert [row.id for row in selection.newest_of_each_series(session, {"commit": "ab12"})] == [
            first, third,
        ]  # fmt: skip
        assert [row.id for row in selection.find_runs(session, f"{second:018}")] == [second]
        assert [row.id for row in selection.find_runs(session, "run c")] == [third]
        for text in (f"{second:019}", "0", "run", "ab12"):
            with pytest.raises(UsageError, match="no run"):
                selection.find_runs(session, text)


def test_a_name_is_of_one_run_of_a_series_and_of_none_that_failed(store: Store) -> None:
    first, second, failed, third = add(
        store, row_of("a"), row_of("b", **later(1)), row_of("c", None), row_of("d", model="other")
    )

    def pin_it(session: Session, *numbers: int) -> None:
        runs = [session.get_one(Run, number) for number in numbers]
        selection.pin_runs(session, "release", runs, START)

    store.write(lambda session: pin_it(session, first, third))
    store.write(lambda session: pin_it(session, second))
    with store.session() as session:
        pinned = [(b.name, row.id) for b, row in selection.pinned_runs(session)]
        assert pinned == [("release", second), ("release", third)]
        with pytest.raises(UsageError, match=rf"run {failed} failed \(it crashed\)"):
            pin_it(session, second, failed)
        selection.check_baseline(session, "release")
        selection.check_baseline(session, "branch:main")
        for text, message in (
            ("releas", "did you mean 'release'"), ("branch:mian", "did you mean 'main'"),
            ("window:0", "from 1 to 100"),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=message):
                selection.check_baseline(session, text)
    assert store.write(lambda session: selection.unpin(session, "release")) == 2


def test_a_metric_of_blocks_has_its_median_with_the_interval_of_its_order() -> None:
    samples = [9.0, 1.0, 4.0, 3.0, 5.0, 6.0, 7.0, 8.0, 2.0]
    facts = metric_of("decode_tokens_per_second", samples)
    # Between the second and the third of nine values from either end, 95 % are reached.
    assert (facts["value"], facts["count"]) == (5, 9)
    assert 2 <= facts["low"] < 3
    assert facts["low"] + facts["high"] == pytest.approx(10)
    assert (facts["unit"], facts["higher_is_better"], facts["samples"]) == (
        "1/s",
        True,
        (*samples,),
    )
    few = metric_of("latency_ns", [1.0, 2.0])
    assert (few["value"], few["low"], few["high"], few["higher_is_better"]) == (
        1.5,
        None,
        None,
        False,
    )


def matrix_of(**changes: object) -> Matrix:
    return parse_matrix(json.dumps({"models": ["toy_cnn"], **changes}), "m")


def units_of(**changes: object) -> list[Unit]:
    return expand(matrix_of(**changes))[0]


def test_a_matrix_goes_through_devices_models_backends_and_precisions_in_turn() -> None:
    devices = [{"name": "host"}, {"name": "a", "kind": "android", "serial": "1"}]
    ways = {"backends": ["xnnpack", "portable"], "precisions": ["fp32", "int8"]}
    units, left_out = expand(
        matrix_of(devices=devices, exclude=[{"device": "a", "precision": "fp32"}], **ways)
    )
    assert [unit.text for unit in units] == [
        "toy_cnn xnnpack fp32 on host", "toy_cnn xnnpack int8 on host",
        "toy_cnn portable fp32 on host", "toy_cnn xnnpack int8 on a",
    ]  # fmt: skip
    excluded = [entry.text for entry in left_out if entry.reason == "excluded"]
    assert excluded == ["toy_cnn xnnpack fp32 on a", "toy_cnn portable fp32 on a"]
    first = units[0]
    assert (first.label, first.program.label) == ("toy_cnn_xnnpack_fp32", "toy_cnn_xnnpack_fp32")
    assert first.run_directory(Path("out")) == Path("out/runs/host/toy_cnn_xnnpack_fp32")
    assert first.find_differences(first.identity()) == []
    assert first.find_differences(units[1].identity()) == ["precision"]
    assert first.find_differences(None) == list(first.identity())
    tasks = [Task(unit, Path("p"), Path("r")) for unit in (units[3], *units)]
    groups = [[task.unit.device.name for task in group] for group in _by_device(tasks)]
    assert groups == [["a", "a"], ["host"] * 3]


@pytest.mark.parametrize(
    ("entry", "name", "label", "length"),
    [
        ({}, "decoder", "decoder", None),
        ({"method": "decode"}, "decoder", "decoder_decode", None),
        ({"generation": {"new_tokens": 8, "prompt_length": 64}},
         "decoder", "decoder_prompt64_generate8", 64),
        ({"generation": {"new_tokens": 8, "prompt_tokens": [1, 2, 3]}},
         "decoder", "decoder_generate8", 3),
    ],
)  # fmt: skip
def test_a_model_is_called_by_what_it_generates(
    entry: dict[str, Any], name: str, label: str, length: int | None
) -> None:
    (model,) = matrix_of(models=[{"model": "decoder", **entry}]).models
    assert (model.name, model.label, model.prompt_length) == (name, label, length)


def test_a_generation_is_repeated_three_times_after_one_unless_more_is_asked_for() -> None:
    generation = {"new_tokens": 8, "prompt_length": 64}
    matrix = matrix_of(models=["toy_cnn", {"model": "decoder", "generation": generation}])
    plain, decoder = matrix.models
    usual, asked = matrix.measurement, matrix_of(measurement={"runs": 7}).measurement
    assert usual.repetitions(decoder, is_timed=True) == {"iterations": 3, "warmup": 1}
    assert asked.repetitions(decoder, is_timed=True) == {"iterations": 7, "warmup": 1}
    assert asked.repetitions(plain, is_timed=False) == {"iterations": 7}
    assert usual.repetitions(decoder, is_timed=False) == {}


@pytest.mark.parametrize(("blocks", "is_too_many"), [(0, False), (1, True)])
def test_as_many_launches_as_are_allowed_are_not_endless(blocks: int, is_too_many: bool) -> None:
    fitting = MOST_LAUNCHES // 4
    measurement = SimpleNamespace(blocks=fitting + blocks)
    one = ("x",)
    matrix: Any = SimpleNamespace(
        models=one, precisions=one, backends=one, devices=one, threads=(1, 2), sme=("off", "sme2"),
        measurement=measurement,
    )  # fmt: skip
    launches = 4 * (fitting + blocks)
    assert [f"{launches} launches" in problem for problem in _endless(matrix)] == [
        True
    ] * is_too_many


def test_a_device_belongs_to_one_worker_once() -> None:
    cluster._check_offers({"a": {"phone": 1.0}, "b": {"tablet": 1.0}})
    for offers in ({"a": {"phone": 2.0}}, {"a": {"phone": 1.0}, "b": {"phone": 1.0}}):
        with pytest.raises(UsageError, match="the workers offer 'phone' 2 times"):
            cluster._check_offers(offers)


def test_a_device_is_lost_when_it_was_away_for_as_long_as_patience_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offers: dict[str, dict[str, float]] = {"worker": {"host": 1.0}}
    now = 100.0
    monkeypatch.setattr(cluster, "_offers", lambda _: offers)
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now))
    phone = {"name": "a", "kind": "android", "serial": "1"}
    here, away = units_of(devices=[{"name": "host"}, phone])
    waiting: Any = {name: Task(unit, Path("p"), Path("r")) for name, unit in
                    (("here", here), ("away", away))}  # fmt: skip
    absent: dict[str, float] = {}

    def lost() -> list[Any]:
        return cluster._without_device(cast("Any", None), waiting, absent, 60.0)

    assert (lost(), absent) == ([], {"a": 100.0})
    now = 159.0
    assert lost() == []
    now = 160.0
    assert lost() == ["away"]
    offers["worker"]["a"] = 1.0
    assert (lost(), absent) == ([], {})


def archive_of(*names: str, size: int = 4) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(b"x" * size))
    return stream.getvalue()


def test_an_archive_may_hold_as_much_as_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    monkeypatch.setattr(archives, "MOST_BYTES", 8)
    archives.unpack_program(archive_of("a", "b/c"), tmp_path / "fits")
    assert (tmp_path / "fits" / "b" / "c").read_bytes() == b"xxxx"
    for name, archive in (("many", archive_of("a", "b", "c", size=1)),
                          ("long", archive_of("a", "b", size=5))):  # fmt: skip
        with pytest.raises(InputFileError, match="has more than 2 files"):
            archives.unpack_program(archive, tmp_path / name)


@pytest.mark.parametrize(
    ("pays", "least"),
    [
        ({16: False, 64: True, 512: True}, 64), ({16: True, 64: False, 512: True}, 512),
        ({16: True, 64: True}, 16), ({16: True, 64: False}, None), ({}, None),
    ],
)  # fmt: skip
def test_sme2_pays_from_the_length_after_the_longest_at_which_it_does_not(
    pays: dict[int, bool], least: int | None
) -> None:
    pairs: Any = [SimpleNamespace(length=length, pays=it) for length, it in pays.items()]
    assert break_even_length(pairs) == least


def bench_row(**facts: Any) -> BenchRow:  # noqa: ANN401
    (unit,) = units_of(threads=[2], sme=["off"])
    outcome = UnitOutcome(unit, duration_s=1.23456, worker="host:1")
    rates = [metric_of("latency_ns", [1e6] * 3), metric_of("prefill_tokens_per_second", [50.0])]
    return BenchRow(outcome, row_of("a", **{"metrics": rates, **facts}), None)


def test_a_row_says_what_its_figures_do_not() -> None:
    row = bench_row()
    assert (row.remark, row.value("latency_ns"), row.value("load_ns")) == (
        "prefill 50.0 /s", 1e6, None,
    )  # fmt: skip
    assert bench_row(latency=None).remark == "failed: it crashed"
    emulated = bench_row(device_kind="emulator", representative=False)
    assert (emulated.remark, emulated.metric("latency_ns")) == ("emulated: kernels, no times", None)
    document = row.document()
    assert (document["duration_s"], document["worker"], document["threads"]) == (1.235, "host:1", 1)
    nothing = BenchRow(replace(row.outcome, errors=("a", "b"), worker=""), None, None)
    assert (nothing.failure, nothing.document()["worker"]) == ("a", None)
    assert nothing.document()["status"] == "failed"
    records = summary_table("m", [row, nothing]).records()
    assert [(entry["SME"], entry["threads"]) for entry in records] == [("off", "1"), ("off", "2")]


def test_sme2_is_held_against_off_at_the_same_threads_where_both_were_measured_as_often() -> None:
    def row(mode: str, threads: int, samples: list[float], **facts: Any) -> Run:  # noqa: ANN401
        metrics = [metric_of("latency_ns", samples)] if samples else []
        key = f"{mode} {threads} {samples}"
        return row_of(key, sme_mode=mode, threads=threads, metrics=metrics, **facts)

    off, other = row("off", 1, [4e6] * 8), row("off", 2, [9e6] * 8)
    effect = _effect_of(row("sme2", 1, [2e6] * 8), [other, off])
    assert effect is not None
    assert (round(effect.speed_up, 9), effect.verdict) == (2.0, "faster")
    assert _effect_of(row("sme2", 1, [2e6] * 7), [off]) is None
    assert _effect_of(row("sme2", 1, []), [row("off", 1, [])]) is None
    assert _effect_of(row("sme2", 4, [2e6] * 8), [off, other]) is None
    assert _effect_of(off, [off]) is None
    assert describe_error(UsageError("plain")) == "plain"
    assert describe_error(KeyError("x")) == "KeyError: 'x'"
