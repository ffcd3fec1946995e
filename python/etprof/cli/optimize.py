"""Search for a better program for a model: apply rewrites, check the outputs, keep what helps.

All rewrites are applied together; then each is removed in turn, and dropped if the program is no
worse without it. A program is accepted only if its outputs are accurate enough. Without --target,
programs are ranked by SME2 coverage (predicted from XNNPACK's kernels), operators outside the
delegate, delegate calls, transposes and size; this says nothing about speed. --target emulator
counts the kernels of programs and checks the outputs of every SME mode. On a target with
meaningful times, programs are measured interleaved, and a rewrite stays only if the program is
slower without it, beyond noise.

Writes, into out_<model>/optimize_<precision> or where --outdir says:
  optimized.pte    the program, with the files of any export beside it
  baseline.pte     the program as it is
  optimize.json    every trial, step and reason; a search that was stopped continues from there
  optimize.html    the same as a page, with searches of other precisions beside it
  recipe.py        makes the same program from the model, readable
  runs/            what was measured or counted, each with its report
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.base.limits import MOST_LAUNCHES, USUAL_BLOCKS
from etprof.base.text import command_line
from etprof.cli.flags import (
    FULL,
    INPUT,
    JSON,
    NO_WAIT,
    RUNNER,
    SERIAL,
    THREADS,
    add_flags,
    decibels,
    duration,
    name_list,
    whole_number,
)
from etprof.cli.follow_up import flags_of_last_profile
from etprof.cli.measuring import listening
from etprof.cli.output import answer
from etprof.targets.registry import KINDS, proves_times

if TYPE_CHECKING:
    import argparse

    from etprof.export.request import ExportRequest
    from etprof.run.optimization import Optimization

EXAMPLES = """\
examples:
  etprof optimize mobilenet_v3_small --dtype fp16
  etprof optimize path/to/net.py:Net --input 1x3x224x224 --budget 120
  etprof profile out_toy_cnn/optimize_fp16/optimized.pte
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.export.request import PRECISION_WORDS

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("model", str, "MODEL", "see `etprof models`; also path/to/file.py:Net, or FILE.pt2"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dtype --precision", str, "PRECISION",
         f"fp16 (default), or another of {', '.join(PRECISION_WORDS)}",
         {"default": "fp16"}),
        ("--target", KINDS, "",
         "count kernels there (emulator), or measure programs interleaved and keep the faster"),
        ("--budget", duration, "TIME",
         "after this time (seconds, 10min, 2h, …) start no trial but the one with all rewrites"),
        INPUT,
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("model"),
        ("--backend", str, "", "delegate (default: as for `etprof export`)"),
        ("--weights", Path, "FILE", "checkpoint with the model's weights"),
    )  # fmt: skip
    _add_search(parser)
    add_flags(
        parser.add_argument_group("target"),
        SERIAL,
        RUNNER,
        THREADS,
        ("--blocks", whole_number(1, MOST_LAUNCHES), "N",
         f"process launches of each program (default {USUAL_BLOCKS})"),
        NO_WAIT,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        ("--outdir", Path, "DIR", "folder of the files (default: out_<model>/optimize_<precision>)"),
        JSON,
    )  # fmt: skip


def _add_search(parser: argparse.ArgumentParser) -> None:
    """Declares what is searched, and what the result has to keep."""
    add_flags(
        parser.add_argument_group("search"),
        ("--rewrite", name_list, "LIST", "search among these only; see `etprof docs optimize`",
         {"default": ("all",), "dest": "rewrites"}),
        ("--rewrite-except", name_list, "LIST",
         "modules that a rewrite leaves as they are, such as 'spelled_norms=encoder.*'",
         {"default": (), "dest": "rewrite_exclusions"}),
        ("--tolerance", decibels, "DB",
         "how many dB less SNR against eager fp32 it may have (default 2 where that is near its least)"),
        ("--least-snr", decibels, "DB",
         "least signal-to-noise ratio of the result (default: the precision's)"),
        ("--dry-run", bool, "", "list what would be tried and what each rewrite would change"),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Searches, writes the files and shows the steps."""
    request = _request(arguments)
    if arguments.dry_run:
        return _show_candidates(request, arguments)
    folder = arguments.outdir or Path(
        f"out_{request.model_name()}", f"optimize_{request.precision}"
    )
    optimization = _search(request, folder, arguments)
    page = _write_page(optimization, folder)
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.optimize import before_and_after, headline, steps_of

    brief = Brief(
        (AnswerLine(headline(optimization)),),
        table=before_and_after(optimization),
        details=(steps_of(optimization),),
        ends=(
            *_sentences(
                optimization,
                folder,
                _measured_as(arguments, folder),
                is_timed=proves_times(arguments.target),
            ),
            f"Every step: {page}, or --full",
        ),
    )
    answer(arguments, optimization.model_dump(mode="json"), brief)
    return 0


def _write_page(optimization: Optimization, folder: Path) -> Path:
    """Writes the search as a page, with those of the same model in other precisions beside it."""
    from etprof.base.atomic import write_text
    from etprof.cli.progress import say
    from etprof.optimize.optimizing import find_other_searches
    from etprof.views.optimize import optimize_page

    page = folder / "optimize.html"
    others = find_other_searches(optimization, folder, say)
    write_text(page, optimize_page(optimization, others))
    return page


def _show_candidates(request: ExportRequest, arguments: argparse.Namespace) -> int:
    from etprof.optimize.optimizing import list_candidates
    from etprof.tables.brief import listed
    from etprof.tables.optimize import candidates_table

    table = candidates_table(list_candidates(request))
    answer(arguments, {"candidates": table.records()}, listed(table))
    return 0


def _search(request: ExportRequest, folder: Path, arguments: argparse.Namespace) -> Optimization:
    """Searches; on the target, where one is named."""
    from etprof.cli.progress import say
    from etprof.optimize.optimizing import Optimizer
    from etprof.optimize.search import TOLERANCE_DB

    fields = {name: getattr(arguments, name) for name in ("serial", "runner")}
    for name, value in {**fields, "threads": arguments.threads, "blocks": arguments.blocks}.items():
        if value is not None and arguments.target is None:
            raise UsageError(
                f"--{name} is for measuring: add --target, such as --target local, or leave it out"
            )
    tolerance_db = TOLERANCE_DB if arguments.tolerance is None else arguments.tolerance
    make_optimizer = partial(
        Optimizer,
        request,
        folder,
        tolerance_db,
        arguments.budget,
        say,
        holds_everywhere=arguments.tolerance is not None,
    )
    if arguments.target is None:
        return make_optimizer().run()
    from etprof.config import TargetConfig
    from etprof.optimize.proving import TargetEvaluator
    from etprof.targets.registry import make_target

    target = make_target(arguments.target, fields, "--target")
    # What it needs is checked before anything is exported.
    target.describe()
    target_config = TargetConfig(kind=arguments.target, serial=arguments.serial)
    with listening(arguments) as listener:
        prover = TargetEvaluator(
            target, target_config, listener, arguments.threads, arguments.blocks
        )
        return make_optimizer(prover=prover).run()


def _request(arguments: argparse.Namespace) -> ExportRequest:
    from etprof.backends.registry import DEFAULT
    from etprof.export.request import ExportOptions, ExportRequest

    request = ExportRequest(
        model=arguments.model,
        precision=arguments.dtype,
        backend=arguments.backend or DEFAULT,
        minimums={} if arguments.least_snr is None else {"snr_db": arguments.least_snr},
        options=ExportOptions(
            weights=arguments.weights,
            rewrites=arguments.rewrites,
            rewrite_exclusions=arguments.rewrite_exclusions,
            example_inputs=tuple(arguments.example_inputs),
        ),
    )
    # An export that is impossible is reported before anything is written.
    replace(request, out=Path("optimized.pte")).files()
    return request


def _nothing_better(optimization: Optimization) -> str:
    """Says so, and of a search that ended early no more than it has seen."""
    if optimization.is_complete:
        return "no rewrite makes this program better"
    return "nothing better was found so far"


def _measured_as(arguments: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    """Returns the flags that measure as the search did, else as the model was measured last."""
    flags: dict[str, object] = {
        f"--{name}": getattr(arguments, name)
        for name in ("target", "serial", "runner", "threads", "blocks")
    }
    chosen_flags = [
        str(argument) for flag, value in flags.items() if value for argument in (flag, value)
    ]
    if chosen_flags:
        return tuple(chosen_flags)
    last_flags = flags_of_last_profile(folder / "program")
    # What comes next is to be timed, and an emulated profile before this search shows no times.
    is_untimed = any(not proves_times(flag) for flag in last_flags)
    return () if is_untimed else last_flags


def _sentences(
    optimization: Optimization, folder: Path, flags: tuple[str, ...], *, is_timed: bool
) -> list[str]:
    """Says what came out, and what to do next; `is_timed` where the flags' target proves times."""
    lines = (
        []
        if optimization.is_complete
        else ["the budget ended first; run the same command again to continue"]
    )
    if optimization.program is None:
        return [
            *lines,
            f"No program was written: {_nothing_better(optimization)}",
        ]
    program = folder / optimization.program
    next_step = "time both, interleaved" if is_timed else "count the kernels of both"
    note = f"these figures rank coverage, not speed; to {next_step}:"
    if optimization.gains:
        note = f"these times are valid for this target only; to {next_step} again, here or with another --target:"
    return [
        *lines,
        f"{program} and its recipe are written; {note}",
        f"  {command_line('profile', folder / (optimization.plain_program or ''), '--against', program, *flags)}",
    ]
