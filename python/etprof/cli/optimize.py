"""Search a better program for a model: apply rewrites, check the outputs, keep what helps.

All rewrites are applied together, then each is taken out again; what the program is no worse
without is left out. A program is used only if its outputs hold. It ranks the coverage of SME2
(predicted from the kernels of XNNPACK), operators outside the delegate, delegate calls and size:
no speed is claimed. Profile both programs on your device for that.

Writes, into out_<model>/optimize_<precision> or where --outdir says:
  optimized.pte    the program, with the files of any export beside it
  optimize.json    every trial, step and reason; a search that was stopped goes on from there
  recipe.py        makes the same program from the model, readable
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import JSON, add_flags, decibels, seconds, word_list
from etprof.cli.output import show, show_json

if TYPE_CHECKING:
    import argparse

    from etprof.export.request import ExportRequest
    from etprof.optimize.trial import Optimization

EXAMPLES = """\
examples:
  etprof optimize mobilenet_v3_small --dtype fp16
  etprof optimize toy_cnn --dtype int8 --budget 120
  etprof profile out_toy_cnn/optimize_fp16/optimized.pte
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.export.request import PRECISIONS

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("model", str, "MODEL", "see `etprof models`; also path/to/file.py:ClassName"),
        ("--dtype --precision", str, "PRECISION",
         f"fp16 (default), or another of {', '.join(PRECISIONS)}, 8da4w_b<BLOCK>",
         {"default": "fp16"}),
        ("--backend", str, "", "the delegate that takes what it can (default)"),
        ("--weights", Path, "FILE", "a checkpoint of the model"),
        ("--rewrite", word_list, "LIST", "search among these only; see docs/optimize.md",
         {"default": ("all",), "dest": "rewrites"}),
        ("--tolerance", decibels, "DB",
         "how many dB the result may be farther from eager than the model as it is (default 2)",
         {"default": 2.0}),
        ("--budget", seconds, "S", "begin no new trial after this many seconds"),
        ("--outdir", Path, "DIR", "folder of the files"),
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Searches, writes the files and shows the steps."""
    from etprof.cli.progress import say
    from etprof.optimize.optimizing import Optimizer
    from etprof.tables.optimize import before_and_after, steps_of

    request = _request(arguments)
    folder = arguments.outdir or Path(
        f"out_{request.model_name()}", f"optimize_{request.precision}"
    )
    found = Optimizer(request, folder, arguments.tolerance, arguments.budget, say).run()
    if arguments.json:
        show_json(found.model_dump(mode="json"))
        return 0
    show(before_and_after(found), steps_of(found), *_sentences(found, folder))
    return 0


def _request(arguments: argparse.Namespace) -> ExportRequest:
    from etprof.backends.registry import DEFAULT
    from etprof.export.request import ExportOptions, ExportRequest

    request = ExportRequest(
        model=arguments.model,
        precision=arguments.dtype,
        backend=arguments.backend or DEFAULT,
        options=ExportOptions(weights=arguments.weights, rewrites=arguments.rewrites),
    )
    # What cannot be exported at all is told before anything is written.
    replace(request, out=Path("optimized.pte")).files()
    return request


def _sentences(found: Optimization, folder: Path) -> list[str]:
    """Says what came out, and what to do next."""
    lines = (
        [] if found.is_complete else ["the budget ended first; the same command goes on from here"]
    )
    if found.program is None:
        return [
            *lines,
            "no rewrite makes this program better; nothing was written but optimize.json",
        ]
    program = folder / found.program
    return [
        *lines,
        f"{program} and its recipe are written; these figures are no times:",
        f"  etprof profile {program}",
    ]
