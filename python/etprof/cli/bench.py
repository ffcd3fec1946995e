"""Measure a whole matrix: models × precisions × backends × devices × SME modes × threads.

Each program is exported once; each device measures it in one run, with SME modes and threads as
experiments in balanced order. Every run goes into the history, failed ones too, and a failure
never stops the others. A device is never used by two runs at once; several work side by side.

  etprof bench --init > matrix.json      a small matrix for this machine, to start from
  etprof bench matrix.json               everything into out_bench/<name> and the history
  etprof bench matrix.json --resume      what is finished is not repeated
  etprof bench --schema                  the JSON Schema, for editors
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from etprof.base.errors import TargetError, UsageError
from etprof.base.text import clean_lines, join_names
from etprof.cli.flags import FULL, JSON, NO_WAIT, STORE, add_flags
from etprof.cli.output import answer, show_schema

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from etprof.bench.combinations import SkippedCombination, Unit
    from etprof.bench.execution import UnitOutcome
    from etprof.bench.matrix import Matrix
    from etprof.bench.session import StoredUnit
    from etprof.tables.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("matrix", Path, "MATRIX.json", "what to measure", {"nargs": "?"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dry-run", bool, "", "show the plan, measure nothing"),
        ("--resume", bool, "", "continue a matrix that was interrupted"),
        ("--export", bool, "", "export again, even what is up to date"),
        STORE,
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("measuring"),
        ("--keep-going", bool, "", "continue an experiment however often it fails"),
        ("--scheduler", str, "HOST:PORT", "Dask scheduler of a pool of several hosts"),
        NO_WAIT,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        ("--out", Path, "DIR", "output folder, in place of the matrix's"),
        JSON,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("to start from").add_mutually_exclusive_group(),
        ("--init", bool, "", "print a matrix to start from"),
        ("--schema", bool, "", "print the JSON Schema of matrices"),
    )


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked."""
    if arguments.init:
        from etprof.config import read_installed

        print(read_installed("examples/matrix_host.json"), end="")
        return 0
    from etprof.bench.combinations import expand
    from etprof.bench.matrix import Matrix, load_matrix

    if arguments.schema:
        show_schema(Matrix.model_json_schema())
        return 0
    if arguments.matrix is None:
        raise UsageError(
            "give a matrix, as in `etprof bench matrix.json`; `etprof bench --init` prints one"
        )
    matrix = load_matrix(arguments.matrix)
    units, left_out = expand(matrix)
    if not units:
        reasons = "; ".join(dict.fromkeys(combination.reason for combination in left_out))
        raise UsageError(f"{arguments.matrix}: every combination is left out: {reasons}")
    if arguments.dry_run:
        return _show_plan(arguments, units, left_out)
    return _measure(arguments, matrix, units, left_out)


def _show_plan(
    arguments: argparse.Namespace, units: list[Unit], left_out: list[SkippedCombination]
) -> int:  # fmt: skip
    """Prints what would run, device by device."""
    from etprof.base.units import count_of
    from etprof.tables.brief import AnswerLine, Brief

    reasons = [
        {"combination": combination.text, "reason": combination.reason} for combination in left_out
    ]
    plan = [unit.identity() for unit in units]
    programs = len({unit.program for unit in units})
    headline = (
        f"{count_of(programs, 'program')} to export, {count_of(len(units), 'run')} to measure"
    )
    brief = Brief((AnswerLine(headline),), lines=tuple(_planned(units, left_out)))
    answer(arguments, {"runs": plan, "left_out": reasons}, brief)
    return 0


def _planned(units: list[Unit], left_out: list[SkippedCombination]) -> Iterator[str]:
    """Yields a line for each run, what each device starts, and what is left out."""
    from etprof.base.records import sme_label
    from etprof.tables.brief import UnbrokenLine

    for number, unit in enumerate(units, start=1):
        modes = join_names(map(sme_label, unit.sme)) or "SME as the device has it"
        threads = ", ".join(map(str, unit.threads))
        yield f"{number:4}  {unit.text}: {modes}; threads {threads}"
    for device in dict.fromkeys(unit.device for unit in units):
        for verb, runner, preset in (
            ("starts", device.runner, device.preset),
            ("counts microkernels with", device.trace_runner, device.trace_preset),
            ("counts microkernels with", device.debugger, None),
        ):
            if runner is not None or preset is not None:
                runner_name = runner or f"the runner of preset {preset}"
                yield UnbrokenLine(f"device {device.name} {verb} {runner_name}")
    for combination in left_out:
        yield f"   –  {combination.text}: {combination.reason}"


def _measure(
    arguments: argparse.Namespace,
    matrix: Matrix,
    units: list[Unit],
    left_out: list[SkippedCombination],
) -> int:
    """Runs the matrix and reports; 5 when anything failed."""
    from etprof.bench.session import MatrixSession, Request
    from etprof.history.store import is_new_in_git, open_store
    from etprof.tables.brief import listed

    folder = arguments.out or matrix.folder
    is_new = arguments.store is None and is_new_in_git()
    request = Request(
        folder=folder,
        resume=arguments.resume,
        export=arguments.export,
        scheduler=_scheduler_address(arguments.scheduler),
        keep_going=arguments.keep_going,
        wait=not arguments.no_wait,
    )
    with open_store(arguments.store) as store, BenchReporter(len(units)) as reporter:
        stored_units = MatrixSession(units, request, store, reporter).run()
    table, further_tables, document = _report(matrix.name, folder, stored_units, left_out)
    where = f"The history is {store.name}; runs, programs and summaries are in {folder}"
    if is_new:
        where += (
            ". git shows the history as untracked: ignore it, or name another file with --store"
        )
    sentences = [row["says"] for row in document["sme2_pays"]]
    answer(arguments, document, listed(table, ends=[*sentences, where], details=further_tables))
    return TargetError.exit_code if any(unit.outcome.errors for unit in stored_units) else 0


def _scheduler_address(text: str | None) -> str | None:
    """Returns a Dask address; HOST:PORT alone means TCP."""
    return f"tcp://{text}" if text is not None and "://" not in text else text


def _report(
    name: str, folder: Path, stored_units: list[StoredUnit], left_out: list[SkippedCombination]
) -> tuple[Table, list[Table], dict[str, Any]]:
    """Writes summary.json and summary.md; returns the tables and the document."""
    from etprof.base.atomic import write_json, write_text
    from etprof.bench.prompt_lengths import prompt_length_table
    from etprof.bench.rows import make_rows
    from etprof.bench.summary import (
        render_markdown,
        speed_table,
        summary_document,
        summary_table,
    )

    rows = make_rows(stored_units)
    document = summary_document(name, rows, stored_units, left_out)
    write_json(folder / "summary.json", document)
    write_text(folder / "summary.md", render_markdown(name, rows, stored_units, left_out))
    speed = speed_table(rows)
    further_tables = [table for table in (speed, prompt_length_table(rows)) if table.rows]
    return summary_table(name, rows), further_tables, document


class BenchReporter:
    """Shows a line per run on standard error, and a bar per device on a terminal."""

    def __init__(self, total: int) -> None:
        import threading

        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._lock = threading.Lock()
        self._bars: dict[str, int] = {}
        self._done, self._total = 0, total

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self._progress.console.print(clean_lines(text), markup=False)

    def step(self, unit: Unit, text: str, done: int, total: int) -> None:
        """Moves the device's bar."""
        with self._lock:
            device = unit.device.name
            if device not in self._bars:
                self._bars[device] = self._progress.add_task("", total=None)
            description = f"{unit.text}: {text}"
            self._progress.update(
                self._bars[device],  # type: ignore[arg-type]
                description=description,
                completed=done,
                total=total,
            )

    def finished(self, outcome: UnitOutcome) -> None:
        """Prints how a run went."""
        with self._lock:
            self._done += 1
            outcome_text = (
                f"failed: {outcome.errors[0]}" if outcome.errors else f"{outcome.duration_s:.1f} s"
            )
            if not outcome.errors and not outcome.worker:
                outcome_text = "finished earlier"
            self.say(f"[{self._done}/{self._total}] {outcome.unit.text}: {outcome_text}")
