# ruff: noqa: N999
"""Make a run directory of what another program measured.

Takes the files that you have, in any order, and recognises each by its content:

  model.etdump                 an ETDump, of any runner
  model.etrecord + model.pte   modules and source lines of its operators
  runner.log                   what executor_runner printed: load time, each inference, threads
  benchmark_results.json       of minibench, ExecuTorch's benchmark app for Android
  ios.log                      what ExecuTorch's benchmark app for iOS printed (XCTest)

Several logs, or several ETDumps, are launches of the same program. `etprof analyze`, `report`,
`validate`, `compare` and `history add` take the run; it says what is missing.

An ETDump does not say what its clock counts. If neither the log given with it nor the delegate's
times show that, --time-scale is required. Cycles need --clock-hz to be converted to times.

  etprof import model.etdump runner.log --sme sme2
  etprof import model.etdump model.etrecord model.pte --time-scale ns
  etprof import cycles.etdump --time-scale cycles --clock-hz 800e6 --threads 1
  etprof import benchmark_results.json --inferences 50
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.limits import MOST_INFERENCES, MOST_THREADS
from etprof.cli.flags import CLOCK, FULL, JSON, add_flags, whole_number
from etprof.cli.output import answer

if TYPE_CHECKING:
    import argparse

    from etprof.run.delegation import DelegationReport

_PLATFORMS = ("android", "ios", "mac", "linux", "emulator", "unknown")
_IN_FORCE = ("sme2", "sme1", "off")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("files", Path, "FILE", "what the other program left", {"nargs": "+"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--out", Path, "DIR", "the run directory (default: out_<model>/runs/<platform>)"),
        ("--model", str, "NAME", "call the model this (default: as the files do)"),
        ("--dtype", str, "PRECISION", "its precision, such as fp16"),
        ("--sme", _IN_FORCE, "", "the SME mode that was in force"),
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("what the files do not say"),
        ("--platform", _PLATFORMS, "", "where it ran (default: as the files say)"),
        ("--threads", whole_number(1, MOST_THREADS), "N", "threads in force (default: as the log says)"),
        ("--inferences", whole_number(1, MOST_INFERENCES), "N",
         "inferences whose mean minibench kept (its num_iter, 50 unless asked otherwise)"),
        *CLOCK,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Makes the run directory and says what it has, and what is missing."""
    from etprof.importing.import_run import ImportRequest, import_run
    from etprof.tables.brief import AnswerLine, Brief

    request = ImportRequest(
        files=arguments.files,
        folder=arguments.out,
        model=arguments.model,
        precision=arguments.dtype,
        platform=arguments.platform,
        sme=arguments.sme,
        threads=arguments.threads,
        inferences=arguments.inferences,
        time_scale=arguments.time_scale,
        clock_hz=arguments.clock_hz,
    )
    done = import_run(request, describe=_describe)
    imported, notes = done.manifest.imported, done.manifest.notes
    sources = imported.sources if imported else ()
    clock = imported.clock if imported else None
    document = {
        "run_dir": str(done.folder),
        "run_id": done.manifest.run_id,
        "model": done.manifest.model.name,
        "platform": done.manifest.platform,
        "sources": [source.model_dump(mode="json") for source in sources],
        "ns_per_tick": imported.ns_per_tick if imported else None,
        "clock": clock,
        "missing": list(notes),
        "set_aside": str(done.set_aside) if done.set_aside else None,
    }
    answer_lines = [AnswerLine(f"{done.folder}: {', '.join(source.kind for source in sources)}")]
    if done.set_aside is not None:
        answer_lines.append(AnswerLine(f"The run that was there is now {done.set_aside}"))
    if clock is not None:
        answer_lines.append(AnswerLine(f"Clock of the ETDump: {clock}"))
    lines = tuple(AnswerLine(f"Missing: {note}", "yellow") for note in notes)
    answer(
        arguments,
        document,
        Brief(tuple(answer_lines), lines=lines, ends=(_next_step(done.folder),)),
    )
    return 0


def _next_step(folder: Path) -> str:
    from etprof.base.text import command_line

    return f"Analyse it: {command_line('analyze', folder)}"


def _describe(program: Path, record: Path) -> DelegationReport:
    """Reads program and ETRecord, which takes torch and ExecuTorch."""
    from etprof.etrecord.program import describe_program

    return describe_program(program, record)
