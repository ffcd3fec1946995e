"""Show the history in a browser: latest runs, trends, comparisons, failures.

Serves on this machine only. With --export the same pages are written as files, which any web host
can show and which open from disk; nothing is loaded from anywhere else in either case.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import JSON, STORE, add_flags, whole_number
from etprof.cli.output import show, show_json

if TYPE_CHECKING:
    import argparse

    from etprof.history.store import Store

EXAMPLES = """\
examples:
  etprof dashboard
  etprof dashboard --store nightly.sqlite --port 0
  etprof dashboard --store postgresql://bench@db/history --export site
"""
_HIGHEST_PORT = 65_535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        STORE,
        ("--port", whole_number(0, _HIGHEST_PORT), "PORT", "0 takes a free one (%(default)s)",
         {"default": 8050}),
        ("--host", str, "", "address to listen at (%(default)s)", {"default": "127.0.0.1"}),
        ("--listen-beyond-loopback", bool, "",
         "let other machines see the dashboard; it has no password"),
        ("--export", Path, "DIR", "write files, serve nothing"),
        ("--runs", whole_number(0), "N",
         "with --export: how many of the newest runs have a page (500)"),
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Serves until interrupted, or writes the files."""
    from etprof.base.errors import UsageError
    from etprof.history.store import open_store

    if arguments.json and arguments.export is None:
        raise UsageError("--json belongs to --export DIR; served pages are for a browser")
    if arguments.runs is not None and arguments.export is None:
        raise UsageError(
            "--runs belongs to --export DIR; a served dashboard has a page for every run"
        )
    with open_store(arguments.store, create=False) as store:
        return _serve(store, arguments) if arguments.export is None else _export(store, arguments)


def _export(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.base.units import count_of, format_count
    from etprof.dashboard.export import DEFAULT_RUNS, export_site

    runs = DEFAULT_RUNS if arguments.runs is None else arguments.runs
    site = export_site(store, arguments.export, newest_runs=runs)
    document = {
        "index": str(site.index),
        "pages": site.pages,
        "runs": site.runs,
        "runs_in_history": site.total_runs,
    }
    if arguments.json:
        show_json(document)
        return 0
    show(
        f"{site.index}: {count_of(site.pages, 'page')}, "
        f"{format_count(site.runs)} of {count_of(site.total_runs, 'run')} with a page of its own"
    )
    return 0


def _serve(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.dashboard.server import listen, serve

    beyond = arguments.listen_beyond_loopback
    with listen(arguments.host, arguments.port, beyond_loopback=beyond) as listener:
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        port = listener.getsockname()[1]
        print(f"{store.name} at http://{host}:{port}/ (Ctrl-C ends it)", flush=True)
        serve(store, listener, beyond_loopback=beyond)
    return 0
