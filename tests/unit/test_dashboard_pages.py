"""What the dashboard's pages say: colours only where the gate is sure, no figure that means nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, select, update

from etprof.base.units import format_change
from etprof.dashboard import parts
from etprof.dashboard.addresses import ServedLinks, make_address
from etprof.dashboard.judging import BASELINE
from etprof.dashboard.queries import list_series, load_trend
from etprof.dashboard.render import answer
from etprof.dashboard.views import trend
from etprof.dashboard.visit import Catalogue, NoSuchPageError, Visit
from etprof.history import run_spread
from etprof.history.check import CheckRequest, check_history
from etprof.history.schema import Run, make_run, record_of
from etprof.history.store import Store, open_store
from etprof.history.tables import format_moment
from etprof.statistics.change_points import find_change_points
from tests.known_history import (
    EMULATOR,
    IMPROVED,
    REGRESSED,
    KnownHistory,
    fill,
    pages,
    pin,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from etprof.history.gate import Judgement

ONE = KnownHistory(
    commits=2, models=("toy_cnn",), devices=("Phone A",), precisions=("fp32",), branches=("main",)
)


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[Callable[[KnownHistory], Store]]:
    stores: list[Store] = []

    def make(known: KnownHistory) -> Store:
        store = open_store(tmp_path / f"{len(stores)}.sqlite")
        stores.append(store)
        fill(store, known)
        return store

    yield make
    for store in stores:
        store.engine.dispose()


def show(store: Store, view: str, **values: str) -> str:
    with store.session() as session:
        visit = Visit(make_address(view, values), ServedLinks(), Catalogue(session))
        return answer(visit)[0].decode()


def colours(page: str) -> list[str]:
    """Of the table; what got worse stands above it once more."""
    table = page[page.find('<h2 id="latest">') :]
    return re.findall(r'<span class="change (better|worse|same)"', table)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.slow
def test_repeated_runs_are_grey_and_a_slowed_one_is_red_ten_times_out_of_ten(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    for seed in range(10):
        known = replace(ONE, seed=seed, sme_modes=("sme2",), all_metrics=False, commits=9)
        same = show(make_store(known), "overview")
        assert colours(same) == ["same"], seed
        slowed = show(make_store(replace(known, models=(REGRESSED,))), "overview")
        assert colours(slowed) == ["worse"], seed
        assert re.search(r"\+2\d\.\d % regression", words(slowed))


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_gate_says_the_same(make_store: Callable[[KnownHistory], Store], rounds: int) -> None:
    """N13: one change had three intervals and two verdicts."""
    # GIVEN a history with and without repeated runs of a commit
    models = ("toy_cnn", REGRESSED, IMPROVED)
    known = replace(ONE, models=models, commits=9, rounds=rounds, precisions=("fp32", "fp16"),
                    noise=0.012)  # fmt: skip
    store = make_store(known)
    with store.session() as session:
        checked = check_history(session, CheckRequest(BASELINE))
    entries = [e for e in checked.entries if e.metric == "latency_ns" and e.outcome != "drift"]
    judged = {str(entry.run.id): entry.judgement for entry in entries}
    verdicts = {number: (each.verdict, interval(each)) for number, each in judged.items() if each}
    assert len(verdicts) == 12
    # THEN every cell of the overview has the gate's verdict, and its interval
    page = show(store, "overview")
    found = re.findall(
        r'href="run\?id=(\d+)">(?:(?!</td>).)*<span class="change \w+"[^>]*>\S+ % (\w+)</span>'
        r'<span class="detail">([^,]*), ',
        page,
    )
    assert {number: tuple(cell) for number, *cell in found} == verdicts
    # AND so has the page of the run
    slow = next(entry.run.id for entry in entries if entry.outcome == "regression")
    assert verdicts[str(slow)][1] in words(show(store, "run", id=str(slow)))
    assert {"regression", "unchanged"} <= {verdict for verdict, _ in verdicts.values()}


def interval(judgement: Judgement) -> str:
    assert judgement.low is not None
    assert judgement.high is not None
    return f"{format_change(judgement.low)} … {format_change(judgement.high)}"


def test_two_runs_have_one_interval(make_store: Callable[[KnownHistory], Store]) -> None:
    """N13: overview, the page of two runs and a check with the same pair had three intervals."""
    store = make_store(replace(ONE, models=(IMPROVED,), commits=9, sme_modes=("off",)))
    pin(store, "release", 3)
    with store.session() as session:
        checked = check_history(session, CheckRequest("release", metrics=("latency_ns",)))
    (entry,) = checked.entries[:1]
    assert entry.judgement is not None
    shown = interval(entry.judgement)
    for page in (
        show(store, "overview"),
        show(store, "compare", baseline="3", candidate="9"),
        show(store, "run", id="9"),
    ):
        assert shown in words(page)


def test_speed_up_needs_runs_that_differ_in_sme_alone(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    store = make_store(ONE)
    assert re.search(r"2\.\d\d× improvement", words(show(store, "overview")))

    def change(**values: object) -> str:
        on = update(Run).where(Run.sme_mode == "sme2")
        store.write(lambda session: session.execute(on.values(**values)))
        return words(show(store, "overview"))

    reason = "the newest runs differ in more than SME"
    # WHEN one side is of another program, runner or commit
    assert reason in change(revision="another")
    # WHEN one side's tree was changed, so that nobody can say
    assert reason in change(revision=None)
    # WHEN neither is known but both stand in one run directory, THEN they were measured together
    store.write(lambda session: session.execute(update(Run).values(revision=None)))
    assert "× improvement" in words(show(store, "overview"))
    assert reason in change(run_name="elsewhere")


def test_precisions_are_held_against_each_other_at_one_commit_only(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    store = make_store(replace(ONE, precisions=("fp32", "fp16"), sme_modes=("off",)))
    page = words(show(store, "sides", model="toy_cnn"))
    assert re.search(r"−3\d\.\d % improvement .* against fp32", page)
    newer = update(Run).where(Run.precision == "fp16").values(git_commit="f" * 40)
    store.write(lambda session: session.execute(newer))
    page = show(store, "sides", model="toy_cnn")
    assert "measured at another commit than fp32" in page
    assert colours(page) == []


def test_emulated_times_are_on_no_page(make_store: Callable[[KnownHistory], Store]) -> None:
    store = make_store(replace(ONE, devices=(), emulated=True))
    with store.session() as session:
        (config,) = {entry.config for entry in list_series(session)}
    pages = {
        "overview": show(store, "overview"),
        "trend": show(store, "trend", config=config),
        "sides": show(store, "sides", model="toy_cnn"),
        "models": show(store, "models"),
        "run": show(store, "run", id="1"),
        "compare": show(store, "compare", baseline="1", candidate="2"),
    }
    for name, page in pages.items():
        assert not re.search(r"\d (ns|µs|ms|s)\b", words(page)), name
        assert colours(page) == [], name
    assert EMULATOR in pages["overview"]
    for name in ("trend", "run", "compare"):
        assert "Not representative." in pages[name], name


def test_runs_of_different_things_are_not_judged(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    store = make_store(replace(ONE, devices=("Phone A", "Phone B")))
    page = show(store, "compare", baseline="1", candidate="3")
    assert "They differ in: device ." in words(page)
    assert "A change between runs that differ in device means nothing." in words(page)
    assert colours(page) == []


def test_changes_are_against_the_pinned_baseline(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    store = make_store(replace(ONE, models=(IMPROVED,), commits=14, sme_modes=("off",)))
    assert "unchanged" in words(show(store, "overview"))
    pin(store, "release", 1)
    page = words(show(store, "overview"))
    assert re.search(r"−(19|20|21)\.\d % improvement .* against baseline release", page)
    assert "Compare with baseline release" in show(store, "run", id="14")


def test_rates_are_better_when_they_rise(make_store: Callable[[KnownHistory], Store]) -> None:
    store = make_store(replace(ONE, models=(IMPROVED,), commits=9))
    pin(store, "off", 1)
    pin(store, "sme2", 2)
    page = words(show(store, "overview", metric="decode_tokens_per_second"))
    # Times fell to 0.8, so rates rose by a quarter.
    assert len(re.findall(r"\+2[45]\.\d % improvement", page)) == 2
    assert re.search(r"2\.\d\d× improvement", page)


@pytest.mark.slow
def test_long_trends_are_thinned_and_say_so(
    make_store: Callable[[KnownHistory], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(replace(ONE, models=("m",), commits=600, all_metrics=False))
    with store.session() as session:
        (config,) = {entry.config for entry in list_series(session)}
    page = show(store, "trend", config=config)
    drawn = page.count('<path class="dot')
    assert f"{drawn} of 1200 runs are drawn: of each stretch the one that stands out" in page
    assert drawn <= 510
    assert "Only the newest" not in page
    whole = show(store, "trend", config=config, sme="off", branch="main")
    assert '<path class="dot' in whole
    # WHEN a line has more runs than are looked at, THEN the page says that too
    monkeypatch.setattr(trend, "MOST_RUNS", 400)
    page = show(store, "trend", config=config)
    assert "of 800 runs are drawn" in page
    assert "Only the newest 400 runs of a line are looked at." in page


def test_an_empty_history_has_pages_too(tmp_path: Path) -> None:
    store = open_store(tmp_path / "empty.sqlite")
    for view in ("overview", "models", "failures", "compare"):
        assert "<h1>" in show(store, view)
    assert "0 configurations" in show(store, "overview")
    store.engine.dispose()


_EACH = 100
"""Steps of SQLite's machine that are counted as one."""


def cost(store: Store) -> dict[str, tuple[int, int, int]]:
    """What each page takes: statements, steps of SQLite's machine, bytes."""
    counted = dict.fromkeys(("statements", "steps"), 0)

    def step() -> int:
        counted["steps"] += _EACH
        return 0

    def note(connection: Connection, *_: object) -> None:
        counted["statements"] += 1
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(step, _EACH)

    event.listen(store.engine, "before_cursor_execute", note)
    found = {}
    for page, values in pages(store).items():
        counted.update(statements=0, steps=0)
        text = show(store, page.partition(",")[0], **values)
        found[page] = (counted["statements"], counted["steps"], len(text.encode()))
    event.remove(store.engine, "before_cursor_execute", note)
    return found


def test_a_page_costs_little_however_long_the_history_is(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    """Promise 51: 300 ms a page with 100,000 runs, which `benchmarks/dashboard_pages.py` measures.

    Without a clock: as many statements as before; of SQLite's machine, which takes some tens of
    millions of steps a second, at most a hundred for each further run; and no endless page. The
    shorter history fills a page, and has all runs that are read to know the noise of a device.
    """
    known = replace(ONE, devices=("Phone A", "Phone B"), precisions=("fp32", "fp16"))
    short, long = (cost(make_store(replace(known, commits=commits))) for commits in (80, 116))
    further = 36 * len(known.devices) * len(known.precisions) * len(known.sme_modes)
    for page, (statements, steps, size) in long.items():
        before = short[page]
        assert (page, statements) == (page, before[0])
        assert steps - before[1] <= 100 * further, page
        assert size < 300_000, page
    assert sum(steps for _, steps, _ in long.values()) > 0


def test_links_name_a_run_by_what_stays_when_a_history_moves(
    make_store: Callable[[KnownHistory], Store], tmp_path: Path
) -> None:
    """Issue 18, item 3: a link held the store's own number, which another store gives to another run."""
    store = make_store(ONE)
    links = set(re.findall(r'href="run\?id=(\w+)"', served(store, "overview")))
    assert links == {key_of(store, 3), key_of(store, 4)}
    page = served(store, "run", id="3")
    # WHEN the same runs stand in a store in another order
    other = open_store(tmp_path / "moved.sqlite")
    try:
        with store.session() as session:
            runs = [record_of(run).model_dump(mode="json") for run in session.scalars(select(Run))]
        with other.session() as session:
            for facts in reversed(runs):
                made = make_run(facts)
                made.added_at = made.measured_at
                session.add(made)
            session.commit()
        # THEN the link shows the same run there, and its number another one
        assert figures(served(other, "run", id=key_of(store, 3))) == figures(page)
        assert figures(served(other, "run", id="3")) != figures(page)
    finally:
        other.engine.dispose()
    with pytest.raises(NoSuchPageError):
        served(store, "run", id="0" * 16)


def figures(page: str) -> str:
    """Of a page of a run, without its number and the history's size."""
    return words(page).partition(" Figures ")[2].partition(" Written by ")[0]


def key_of(store: Store, number: int) -> str:
    with store.session() as session:
        return Catalogue(session).link_of(number)


def served(store: Store, view: str, **values: str) -> str:
    """A page with the links that the server writes."""
    with store.session() as session:
        catalogue = Catalogue(session)
        visit = Visit(make_address(view, values), ServedLinks(catalogue.link_of), catalogue)
        return answer(visit)[0].decode()


def test_what_became_worse_stands_first(make_store: Callable[[KnownHistory], Store]) -> None:
    """Issue 18, item 3: the overview was by name, so a regression could be on its last page."""
    known = replace(ONE, commits=9, models=("a_model", REGRESSED, "z_model"))
    page = show(make_store(known), "overview")
    first = re.findall(r'<tr data-row data-model="(\w+)"', page)
    assert first == [REGRESSED, "a_model", "z_model"]
    (told,) = re.findall(r'<ol class="worse-list">(.*?)</ol>', page, re.DOTALL)
    assert re.findall(r'<li data-model="(\w+)"', told) == [REGRESSED]
    assert re.search(r"\+2\d\.\d % regression", words(told))
    # THEN each cell has its line, from as many runs as there are
    lines = re.findall(r'class="spark".*? d="(M[^"]*)"', page)
    assert [line.count("L") for line in lines] == [8] * 6
    # WHEN nothing is worse, THEN the page says that
    assert "Nothing: no newest run is a regression" in words(show(make_store(ONE), "overview"))


def test_a_search_looks_at_every_fact_of_every_part(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    """Issue 18, item 3: tables could not be searched."""
    models = tuple(f"m{i:02}" for i in range(60))
    store = make_store(replace(ONE, commits=1, models=models, all_metrics=False))
    for view in ("overview", "models"):
        page = show(store, view, find="M59 phone")
        assert set(re.findall(r'data-row data-model="(\w+)"', page)) == {"m59"}
        assert 'type="search" id="f-find" name="find" maxlength="80" value="M59 phone"' in page
    assert "<tr data-row" not in show(store, "overview", find="m59 tablet")


def test_a_change_of_level_is_shown_with_its_interval(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    """Issue 18, item 3: the most probable run was drawn as if it were certain."""
    store = make_store(replace(ONE, models=(IMPROVED,), commits=24, noise=0.08, sme_modes=("off",)))
    with store.session() as session:
        (series,) = list_series(session)
        points = load_trend(session, series.run.series, "latency_ns", branch="", limit=1000)
    (found,) = find_change_points([point.value or 0.0 for point in points])
    page = show(store, "trend", config=series.config)
    (band,) = re.findall(r'class="level-band"[^>]* data-order="([\d.]+) ([\d.]+)"', page)
    places = [1000 * n / (len(points) - 1) for n in (found.earliest, found.latest)]
    assert [float(each) for each in band] == pytest.approx(places, abs=0.1)
    moments = [format_moment(points[n].measured_at) for n in (found.earliest, found.latest)]
    assert f"began {' … '.join(dict.fromkeys(moments))} (95 %)" in words(page)


def test_runs_of_a_busy_device_are_read_together(
    make_store: Callable[[KnownHistory], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trend of 60 runs took 60 queries where the device has more runs than are read of it."""
    store = make_store(replace(ONE, commits=40))
    few = cost(store)["trend"][0]
    monkeypatch.setattr(run_spread, "_MOST_OF_A_DEVICE", 10)
    assert cost(store)["trend"][0] <= few + 2


def test_few_runs_at_a_time_are_the_same_runs(
    make_store: Callable[[KnownHistory], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(replace(ONE, commits=40, branches=("main", "main", "wip")))
    found = []
    for most in (1000, 5):
        monkeypatch.setattr(run_spread, "MOST_RUNS", most if most < 10 else 300)
        monkeypatch.setattr(run_spread, "_MOST_OF_A_DEVICE", 2000 if most > 10 else 7)
        with store.session() as session:
            series = run_spread.SeriesRuns(session)
            runs = session.scalars(select(Run).order_by(Run.id)).all()
            found.append([
                [point.run_id for point in series.before(run, branch, "latency_ns")][-5:]
                for run in runs
                for branch in ("main", "wip", run.git_branch)
            ])  # fmt: skip
    assert found[0] == found[1]
    assert any(len(each) == 5 for each in found[0])


def test_models_stand_in_the_order_of_what_they_share(
    make_store: Callable[[KnownHistory], Store],
) -> None:
    """Not in that of the models: `a` was measured on the second device alone."""
    store = make_store(replace(ONE, models=("a",), devices=("Phone B",)))
    fill(store, replace(ONE, models=("b",), devices=("Phone A",), seed=1))
    names = re.findall(r"Phone [AB] · .{0,50}? · SME(?: off|2)", words(show(store, "models")))
    assert [(name[:7], name[-4:]) for name in names] == [
        ("Phone A", " off"), ("Phone A", "SME2"), ("Phone B", " off"), ("Phone B", "SME2"),
    ]  # fmt: skip


@pytest.mark.parametrize(("part", "earlier", "later"), [(1, None, 2), (2, 1, 3), (3, 2, None)])
def test_a_page_of_a_long_list_leads_to_its_neighbours(
    part: int, earlier: int | None, later: int | None
) -> None:
    address = SimpleNamespace(view="overview", values={}, part=part)
    visit: Any = SimpleNamespace(links=SimpleNamespace(is_exported=False), address=address)
    rows: Any = range(25)
    visible, facts = parts.paginate(visit, rows, "run", size=10)
    assert list(visible) == list(rows)[10 * (part - 1) : 10 * part]
    linked = [facts[name] and facts[name].part for name in ("earlier", "later")]
    assert linked == [earlier, later]
