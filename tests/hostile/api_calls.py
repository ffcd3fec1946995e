"""The Python API's functions that read files, as a program would use them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import etprof
from etprof.base.files import hash_file
from etprof.bench.archives import unpack_program, unpack_run
from etprof.dashboard.views.report import read_report
from etprof.etdump.reader import load_etdump
from etprof.history.schema import Run as StoredRun
from etprof.run.program import load_export_manifest
from tests.hostile.commands import READ, Command


def read_everything(folder: Path) -> None:
    """Loads the run and asks for each of its tables."""
    run = etprof.load_run(folder / "run")
    for frame in (run.operators, run.categories, run.samples, run.findings, run.comparisons):
        frame()
    for key in ("module", "source", "microkernel"):
        run.rollup(key)
    run.tracer_costs()
    for name in run.experiments:
        run.event_blocks(name)
        run.save_data_to_tsv(folder / "table.tsv", name)
    repr((run, run.model, run.platform, run.notes))


def save_page(folder: Path) -> None:
    """Loads the run and writes its page."""
    etprof.load_run(folder / "run").save_html(folder / "page.html")


def compare_runs(folder: Path) -> None:
    """Compares two experiments of the run."""
    run = etprof.load_run(folder / "run")
    result = etprof.compare(run.experiment("android_off"), run.experiment("android_sme2"))
    repr((result, result.verdict, result.speed_up, result.interval, result.document))
    for frame in (result.operators, result.categories, result.waterfall):
        frame()


def read_one_etdump(folder: Path) -> None:
    """Loads one ETDump through a path, bytes and a stream, and looks at its columns."""
    path = folder / "run" / "android_off" / "known_android_off_t1.etdump"
    dump = load_etdump(path)
    repr((dump, dump.names[:3], dump.profile.name_id[:3]))
    etprof.load_run(path).event_blocks()


def unpack_a_run(folder: Path) -> None:
    """Puts a run directory from a worker in place."""
    unpack_run((folder / "archive.tar.gz").read_bytes(), folder / "from/worker", Path("m.pte"))


def unpack_a_program(folder: Path) -> None:
    """Unpacks a program as a worker does."""
    unpack_program((folder / "archive.tar.gz").read_bytes(), folder / "program")


def read_export_manifest(folder: Path) -> None:
    """Reads what an export says of its program."""
    load_export_manifest(folder / "m.pte")


def read_stored_report(folder: Path) -> None:
    """Reads the page that the dashboard gives out for a run."""
    place, manifest = folder / "run", folder / "run" / "manifest.json"
    own = hash_file(manifest) if manifest.is_file() else None
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    read_report(
        StoredRun(run_path=str(place), manifest_sha256=own, measured_at=moment, artefacts={})
    )


def read_an_etrecord(folder: Path) -> None:
    """Reads what an ETRecord says of a program, as far as its graphs."""
    from etprof.etrecord.program import read_etrecord

    read_etrecord(folder / "x.etrecord")


def _call(function: object, *, writes_pages: bool = True) -> Command:
    name = f"API {function.__name__}"  # type: ignore[attr-defined]
    return Command(name, lambda _: [], READ | {2}, function, writes_pages)  # type: ignore[arg-type]


RUN: Final = tuple(map(_call, (read_everything, save_page, compare_runs)))
ETDUMP: Final = (_call(read_one_etdump),)
ARCHIVE: Final = tuple(_call(call, writes_pages=False) for call in (unpack_a_run, unpack_a_program))
PROGRAM: Final = (_call(read_export_manifest),)
ETRECORD: Final = (_call(read_an_etrecord),)
REPORT_PAGE: Final = (_call(read_stored_report),)
