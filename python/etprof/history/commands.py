"""What `etprof history` does and prints, one function per action; each returns the exit code."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from rich.console import Console
from sqlalchemy import select

from etprof.base.atomic import write_text
from etprof.base.errors import EtprofError, OutputError
from etprof.base.text import clean_lines
from etprof.base.units import count_of
from etprof.history import run_tables
from etprof.history.check import check_history
from etprof.history.check_report import check_document, render_markdown, render_terminal
from etprof.history.exchange import Format, export_runs, import_file
from etprof.history.metric_names import METRICS
from etprof.history.noise import noise_floors
from etprof.history.schema import Baseline, Run
from etprof.history.selection import find_runs, newest_runs, pin_runs
from etprof.history.selection import unpin as remove_baseline
from etprof.history.trend import find_changes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import RenderableType
    from sqlalchemy.orm import Session

    from etprof.history.check import CheckRequest, CheckResult
    from etprof.history.selection import Filters
    from etprof.history.store import Store


def add(store: Store, run_dirs: Sequence[Path], device: str | None) -> int:
    """Adds run directories one by one; what cannot be read is named, and the others are added."""
    unread: list[EtprofError] = []
    for run_dir in run_dirs:
        try:
            added = store.add_run_directory(run_dir, device=device)
        except EtprofError as error:
            if len(run_dirs) == 1:
                raise
            unread.append(error)
            continue
        for entry in added:
            how = "added" if entry.is_new else "known"
            failure = f", failed: {entry.document.failure}" if entry.document.failure else ""
            print(
                clean_lines(f"{how} #{entry.run_id} {run_dir} {entry.document.experiment}{failure}")
            )
    for reason in unread:
        print(clean_lines(f"not added: {reason}"))
    return unread[0].exit_code if unread else 0


def list_runs(store: Store, filters: Filters, limit: int) -> int:
    """Prints the newest runs."""
    with store.session() as session:
        runs = newest_runs(session, filters, limit)
        _show(run_tables.runs_table(runs) if runs else "No run matches; `add` adds run directories")
    return 0


def show(store: Store, text: str) -> int:
    """Prints everything about the runs that `text` names."""
    with store.session() as session:
        for run in find_runs(session, text):
            _show(run_tables.run_details(run))
    return 0


def check(store: Store, request: CheckRequest, form: str, out: Path | None) -> int:
    """Judges, and prints or writes the result; returns 1 for a regression or a failed run."""
    with store.session() as session:
        result = check_history(session, request)
    if form == "text" and out is None:
        Console().print(render_terminal(result))
        return result.exit_code
    text = _render(result, form)
    if out is None:
        print(text, end="")
    else:
        write_text(out, text)
    return result.exit_code


def _render(result: CheckResult, form: str) -> str:
    if form == "markdown":
        return render_markdown(result)
    if form == "json":
        return json.dumps(check_document(result), indent=2, ensure_ascii=False) + "\n"
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(render_terminal(result))
    return capture.get()


def pin(store: Store, name: str, text: str) -> int:
    """Makes the runs that `text` names the baseline `name`."""

    def work(session: Session) -> list[int]:
        runs = find_runs(session, text)
        pin_runs(session, name, runs, datetime.now(UTC))
        return [run.id for run in runs]

    numbers = ", ".join(f"#{number}" for number in store.write(work))
    print(
        clean_lines(
            f"{name} is now {numbers}; `etprof history check --baseline {name}` compares with it"
        )
    )
    return 0


def unpin(store: Store, name: str) -> int:
    """Forgets a baseline; its runs stay."""
    count = store.write(lambda session: remove_baseline(session, name))
    print(
        clean_lines(
            f"{name} is no baseline any more (it was one of {count_of(count, 'series', 'series')})"
        )
    )
    return 0


def list_baselines(store: Store) -> int:
    """Prints what is pinned."""
    query = select(Baseline, Run).join(Run, Run.id == Baseline.run_id)
    with store.session() as session:
        rows = session.execute(query.order_by(Baseline.name, Run.id)).all()
        missing = "No baseline is pinned; `etprof history pin NAME RUN` pins one"
        _show(run_tables.baselines_table(rows) if rows else missing)
    return 0


def changes(store: Store, metric: str, filters: Filters) -> int:
    """Prints where a metric's level changed, series by series."""
    with store.session() as session:
        found = find_changes(session, metric, filters)
    _show(run_tables.changes_table(metric, found) if found else f"No change of level in {metric}")
    return 0


def noise(store: Store, *, as_json: bool) -> int:
    """Prints the noise floor of each device and metric."""
    with store.session() as session:
        floors = noise_floors(session, tuple(METRICS))
    if as_json:
        print(json.dumps([asdict(floor) for floor in floors], indent=2, ensure_ascii=False))
    elif floors:
        _show(run_tables.noise_table(floors))
    else:
        print(
            "No A/A data yet: measure the same program twice on one device, at one commit without "
            "changes, and add both runs"
        )
    return 0


def export(store: Store, path: Path, kind: str, filters: Filters) -> int:
    """Writes runs to a file; never over one that is there."""
    if path.exists():
        msg = f"{path} exists and is not overwritten; choose another name"
        raise OutputError(msg)
    with store.session() as session:
        count = export_runs(session, path, cast("Format", kind), filters)
    print(clean_lines(f"Wrote {count_of(count, 'run')} to {path}"))
    return 0


def import_runs(store: Store, path: Path) -> int:
    """Adds the runs of an export."""
    done = import_file(store, path)
    pinned = f", pinned {count_of(done.baselines, 'baseline')}" if done.baselines else ""
    print(f"Added {count_of(done.added, 'run')}, {done.known:,} were known{pinned}")
    return 0


def _show(what: RenderableType) -> None:
    Console().print(what)
