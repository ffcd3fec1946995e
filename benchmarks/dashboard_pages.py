"""How long does the dashboard take for a page of a history of 100,000 runs, or of a team's year?

    python benchmarks/dashboard_pages.py [--year]

Fills a SQLite history with synthetic runs, serves it, and asks for each page over HTTP. Prints the
median and the size per page; exit code 1 when a page needs more than the budget. On a machine that
others use too, the processor time that the page cost says more: it stands beside. With --year the
history is that of `team_year.py`; it is exported too, and the largest page of each view is opened in
Chromium, where there is one.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from etprof.dashboard.export import export_site
from etprof.dashboard.server import listen, make_server
from etprof.history.store import Store, open_store

sys.path.insert(0, str(Path(__file__).parents[1]))
from collections.abc import Iterator, Mapping

from team_year import TeamYear
from tests.browser.pages import CHROMIUM
from tests.known_history import KnownHistory, fill, pages

BUDGET_MS = 300.0
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def synthetic(runs: int) -> KnownHistory:
    """800 series: 10 models on 5 devices in 4 precisions at 2 thread counts, SME off and on."""
    return KnownHistory(
        commits=max(runs // 800, 1),
        models=("toy_cnn", "mobilenet_v2", "toy_transformer", *(f"model_{i}" for i in range(7))),
        devices=tuple(f"Phone {name} (synthetic)" for name in "ABCDE"),
        precisions=("fp32", "fp16", "int8", "int4"),
        threads=(1, 4),
    )


def one_series(runs: int) -> KnownHistory:
    """All runs in two lines of one trend."""
    return KnownHistory(
        commits=runs // 2,
        models=("toy_cnn",),
        devices=("Phone A (synthetic)",),
        precisions=("fp32",),
        all_metrics=False,
    )


@contextmanager
def serving(store: Store) -> Iterator[int]:
    """Serves the store in a thread and yields the port."""
    with listen("127.0.0.1", 0) as listener:
        server = make_server(store)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@dataclass(frozen=True)
class Timing:
    """What one page took."""

    first_ms: float
    """With nothing kept from pages before."""
    times_ms: list[float]
    processor_ms: float
    size_bytes: int


def measure_page(port: int, path: str, repetitions: int) -> Timing:
    """Asks once, then `repetitions` times."""
    start = time.perf_counter()
    size = ask(port, path)
    first = (time.perf_counter() - start) * 1e3
    times: list[float] = []
    used = time.process_time()
    for _ in range(repetitions):
        start = time.perf_counter()
        size = ask(port, path)
        times.append((time.perf_counter() - start) * 1e3)
    processor = (time.process_time() - used) * 1e3 / repetitions
    return Timing(first, times, processor, size)


def ask(port: int, path: str) -> int:
    """Gets one page and returns its size."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return size


def measure_store(name: str, known: KnownHistory, folder: Path, repetitions: int) -> float:
    """Prints a line for each page and returns the slowest median in ms."""
    store = open_store(folder / f"{name.replace(' ', '_')}.sqlite")
    start = time.perf_counter()
    count = fill(store, known)
    print(f"{name}: {count:,} synthetic runs, written in {time.perf_counter() - start:.0f} s")
    slowest = measure_pages(store, repetitions)
    store.engine.dispose()
    return slowest


def measure_year(folder: Path, repetitions: int) -> float:
    """Prints the pages of a team's year, served and as files; returns the slowest median in ms."""
    store = open_store(folder / "year.sqlite")
    start = time.perf_counter()
    TeamYear(store, seed=0).run()
    print(f"a year of twelve configurations, simulated in {time.perf_counter() - start:.0f} s")
    slowest = measure_pages(store, repetitions)
    start = time.perf_counter()
    site = export_site(store, folder / "pages")
    print(f"{site.pages:,} pages exported in {time.perf_counter() - start:.0f} s")
    store.engine.dispose()
    print_files(folder / "pages")
    return slowest


def print_files(folder: Path) -> None:
    """Prints for each view how many pages there are, how large, and how long the largest loads."""
    pages_by_view: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.html")):
        pages_by_view.setdefault(path.stem.partition("-")[0], []).append(path)
    largest = {view: max(paths, key=_size_of) for view, paths in pages_by_view.items()}
    load_ms = load_in_browser(largest)
    for view, paths in pages_by_view.items():
        sizes = [_size_of(path) / 1000 for path in paths]
        loaded = f"{load_ms[view]:6.0f} ms to load it" if view in load_ms else ""
        print(f"  {view:12} {len(paths):6,} pages {statistics.median(sizes):7.1f} kB median "
              f"{max(sizes):7.1f} kB largest {loaded}")  # fmt: skip


def _size_of(path: Path) -> int:
    return path.stat().st_size


def load_in_browser(pages_by_view: Mapping[str, Path]) -> dict[str, float]:
    """Returns milliseconds until each page has loaded in Chromium; empty without one."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if CHROMIUM is None:
        return {}
    loaded_ms = {}
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        for view, path in pages_by_view.items():
            page = browser.new_page()
            page.goto(path.as_uri())
            loaded_ms[view] = float(page.evaluate(_LOADED))
            page.close()
        browser.close()
    return loaded_ms


def measure_pages(store: Store, repetitions: int) -> float:
    """Prints a line for each page and returns the slowest median in ms."""
    slowest = 0.0
    with serving(store) as port:
        for page, values in pages(store).items():
            view = page.split(",")[0]
            path = f"/{view}?{urlencode(values)}"
            found = measure_page(port, path, repetitions)
            median = statistics.median(found.times_ms)
            slowest = max(slowest, median)
            print(f"  {page:26} {median:5.0f} ms median {found.first_ms:6.0f} ms at first "
                  f"{found.processor_ms:5.0f} ms processor {found.size_bytes / 1000:5.0f} kB")  # fmt: skip
    return slowest


def measure_both(runs: int, folder: Path, repetitions: int) -> float:
    """Prints the pages of many series and of long ones; returns the slowest median in ms."""
    return max(
        measure_store("800 series", synthetic(runs), folder, repetitions),
        measure_store("2 series", one_series(runs), folder, repetitions),
    )


def main() -> int:
    """Measures both histories, or the year."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--year", action="store_true", help="a team's year instead")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors, load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.year:
            slowest = measure_year(folder, arguments.repetitions)
        else:
            slowest = measure_both(arguments.runs, folder, arguments.repetitions)
    print(f"load after: {os.getloadavg()[0]:.1f}")
    print(f"slowest page {slowest:.0f} ms, budget {BUDGET_MS:.0f} ms")
    return 0 if slowest <= BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
