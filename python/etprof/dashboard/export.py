"""Writes the dashboard as files: the same pages, for a web host, a CI artefact or the disk."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof._version import __version__
from etprof.base.atomic import write_bytes, write_json, write_text
from etprof.base.errors import OutputError
from etprof.dashboard.addresses import ExportedLinks, make_address
from etprof.dashboard.queries import find_runs_before, list_newest, load_baselines, load_runs
from etprof.dashboard.render import ASSETS, answer, read_asset, render_problem
from etprof.dashboard.visit import Catalogue, NoSuchPageError, Visit

if TYPE_CHECKING:
    from collections.abc import Callable

    from etprof.dashboard.addresses import Address
    from etprof.history.store import Store

MARKER: Final = "etprof_dashboard.json"
"""Tells an exported dashboard from a folder that is not ours to replace."""
MOST_BRANCHES: Final = 20
DEFAULT_RUNS: Final = 500


@dataclass(frozen=True)
class ExportedSite:
    """What was written."""

    index: Path
    pages: int
    runs: int
    """Runs that have a page."""
    total_runs: int


def export_site(
    store: Store,
    folder: Path,
    *,
    newest_runs: int = DEFAULT_RUNS,
    progress: Callable[[int], None] = lambda _: None,
) -> ExportedSite:
    """Writes the site to `folder`, in place of an earlier one, and only when it is complete.

    The newest `newest_runs` runs have pages, and so have the latest of each series and what they
    are compared with. `progress` is told how many pages are written.
    """
    _check_replaceable(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    except OSError as error:
        msg = f"cannot write {folder}: {error.strerror}; choose another folder"
        raise OutputError(msg) from error
    try:
        site = _write_site(store, workplace, newest_runs, progress)
        _put_in_place(workplace, folder)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
    return ExportedSite(folder / "index.html", *site)


def _check_replaceable(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / MARKER).is_file():
        msg = f"{folder} exists and is not an exported dashboard; choose another folder"
        raise OutputError(msg)


def _put_in_place(workplace: Path, folder: Path) -> None:
    """Swaps the finished site for the earlier one, which stays when that fails."""
    earlier = workplace.with_name(f"{workplace.name}.earlier")
    try:
        workplace.chmod(0o755)
        if folder.exists():
            folder.rename(earlier)
        workplace.rename(folder)
    except OSError as error:
        if earlier.exists():
            earlier.rename(folder)
        msg = f"cannot replace {folder}: {error.strerror}; choose another folder"
        raise OutputError(msg) from error
    shutil.rmtree(earlier, ignore_errors=True)


def _write_site(
    store: Store, folder: Path, newest_runs: int, progress: Callable[[int], None]
) -> tuple[int, int, int]:
    """Writes every page that a link or a form leads to, from the overview on; three counts."""
    with store.session() as session:
        catalogue = Catalogue(session, most_branches=MOST_BRANCHES)
        run_ids = _choose_runs(catalogue, newest_runs)
        links = ExportedLinks(lambda address: _is_exported(address, run_ids), catalogue.link_of)
        links.href(make_address("overview", {}))
        written = 0
        while written < len(links.pages):
            for name, address in list(links.pages.items())[written:]:
                _write_page(folder / name, Visit(address, links, catalogue))
                written += 1
                progress(written)
            # The catalogue stays; the rows of pages that are written may go.
            session.expunge_all()
        for asset in ASSETS:
            write_text(folder / asset, read_asset(asset))
        first = next(iter(links.pages))
        shutil.copyfile(folder / first, folder / "index.html")
        counts = (written, len(run_ids), catalogue.run_count)
    facts = dict(zip(("pages", "runs_with_page", "runs"), counts, strict=True))
    write_json(folder / MARKER, {"schema_version": 1, "etprof": __version__, **facts})
    return counts


def _choose_runs(catalogue: Catalogue, newest: int) -> set[int]:
    """Which runs have a page."""
    session, all_series = catalogue.session, catalogue.series()
    latest = {series.latest_id for series in all_series if series.latest_id}
    failed = {series.run.id for series in all_series}
    runs = load_runs(session, latest).values()
    before = find_runs_before(session, runs).values()
    pinned = load_baselines(session, [series.run.series for series in all_series]).values()
    baselines = {baseline.run_id for series_baselines in pinned for baseline in series_baselines}
    return {*latest, *failed, *before, *baselines, *list_newest(session, newest)}


def _is_exported(address: Address, run_ids: set[int]) -> bool:
    """Whether there is a page: lists always, runs only where they are kept."""
    numbers = [address[name] for name in ("id", "baseline", "candidate") if address[name]]
    if address.view == "compare" and len(numbers) < 2:
        return False
    return all(int(number) in run_ids for number in numbers)


def _write_page(path: Path, visit: Visit) -> None:
    try:
        write_bytes(path, answer(visit)[0])
    except NoSuchPageError as error:
        write_text(path, render_problem(visit.address, visit.links, "No such page", str(error)))
