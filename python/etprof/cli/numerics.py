"""Find the operator at which a program's values start to differ from the eager model's.

Every operator's value becomes an output, inside delegates too, in each SME mode of the target, and
is compared with eager. The error that the operator adds itself, given the program's own inputs to
it, is kept apart from the error that it inherits. MODEL is lowered again. For FILE.pte, the export
manifest next to it names the model, and the outputs of FILE.pte are compared with those of the
tapped program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from etprof.cli.flags import (
    FULL,
    INPUT,
    JSON,
    NO_WAIT,
    RUNNER,
    SERIAL,
    add_flags,
    whole_number,
)
from etprof.cli.output import show, show_answer, show_json
from etprof.targets.registry import KINDS, LOCAL

if TYPE_CHECKING:
    import argparse

    from etprof.analysis.numeric_gap import NumericGaps
    from etprof.export.request import ExportRequest
    from etprof.numerics.session import GapRequest

EXAMPLES = """\
examples:
  etprof numerics toy_cnn
  etprof numerics mobilenet_v2 --dtype int8 --target emulator
  etprof numerics my_model.pte --sme sme2 --sme off --target emulator
  etprof numerics path/to/net.py:Net --input 1x3x224x224 --memory 64
"""
_MIB: Final = 2**20
_USUAL_TOP: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.base.records import SmeInForce

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("model", str, "MODEL|FILE.pte",
         "see `etprof models`; also path/to/file.py:Net, or FILE.pt2"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dtype --precision", str, "PRECISION", "as for `etprof export` (default fp16)"),
        ("--target", KINDS, "", "where to run: this machine (default), emulator, android, …",
         {"default": LOCAL}),
        ("--sme", (*get_args(SmeInForce),), "", "only this mode; may be given again (default: all)",
         {"action": "append", "default": []}),
        INPUT,
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("model"),
        ("--backend", str, "", "delegate, or portable for none (default: as for `etprof export`)"),
        ("--weights", Path, "FILE", "checkpoint with the model's weights"),
        ("--method", str, "", "method to run (default: forward, or the program's first)"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("taps"),
        ("--memory", whole_number(1, 2**20), "MIB",
         "tapped values that one program holds; the rest go into further programs (default 128)"),
        ("--taps", whole_number(1), "N", "taps that one program holds (default: as many as fit)"),
        ("--inside-fused", bool, "",
         "also tap operators that the delegate would fuse, which prevents the fusion"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("target"),
        SERIAL,
        RUNNER,
        NO_WAIT,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        ("--out", Path, "DIR", "folder of the files (default out_<model>/numerics/<target>)"),
        ("--top", whole_number(1), "N", f"with --full: operators to list (default {_USUAL_TOP})"),
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Compares, writes the files and shows the operators that add most error."""
    from etprof.backends.executorch_version import require_executorch
    from etprof.cli.export import StageProgress
    from etprof.cli.measuring import patience_of
    from etprof.targets.device_lock import device_lock
    from etprof.targets.registry import make_target

    require_executorch("comparing with the eager model")
    request = _make_request(arguments)
    fields = {"serial": arguments.serial, "runner": arguments.runner}
    target = make_target(arguments.target, fields, "--target")
    with device_lock(target.device(), patience_of(arguments)):
        from etprof.numerics.session import compare_with_eager

        gaps = compare_with_eager(request, target, StageProgress())
    folder = arguments.out or Path(f"out_{gaps.model}") / "numerics" / gaps.platform
    _write(gaps, folder, arguments)
    return 0


def _make_request(arguments: argparse.Namespace) -> GapRequest:
    """Returns what the flags ask for; the manifest beside a program says how that was exported."""
    from etprof.backends.registry import DEFAULT
    from etprof.export.request import ExportOptions, ExportRequest
    from etprof.numerics.session import MOST_BYTES, GapRequest

    program = Path(arguments.model) if arguments.model.endswith((".pte", ".bpte")) else None
    export = (
        ExportRequest(
            model=arguments.model,
            precision=arguments.dtype or "fp16",
            backend=arguments.backend or DEFAULT,
            options=ExportOptions(
                weights=arguments.weights, example_inputs=tuple(arguments.example_inputs)
            ),
        )
        if program is None
        else _exported_as(program, arguments)
    )
    return GapRequest(
        export=export,
        method=arguments.method,
        program=program,
        modes=tuple(arguments.sme),
        most_bytes=MOST_BYTES if arguments.memory is None else arguments.memory * _MIB,
        most_taps=arguments.taps,
        taps_fused=arguments.inside_fused,
    )


def _exported_as(program: Path, arguments: argparse.Namespace) -> ExportRequest:
    """Returns the request that made a program; raises where nothing says what it came from."""
    from etprof.base.errors import InputFileError, UsageError
    from etprof.export.exporter import repeat_request

    for flag, name in (("dtype", "dtype"), ("backend", "backend"), ("input", "example_inputs")):
        if getattr(arguments, name):
            raise UsageError(
                f"{program} is exported already; --{flag} is for a MODEL, leave it out"
            )
    if not program.is_file():
        raise InputFileError(f"{program} does not exist; `etprof export MODEL` makes a program")
    return repeat_request(program, arguments.weights)


def _write(gaps: NumericGaps, folder: Path, arguments: argparse.Namespace) -> None:
    from etprof.report_files import write_content
    from etprof.tables.numerics import brief_gaps, sections
    from etprof.views.numerics import gap_document, gap_files
    from etprof.views.terminal import terminal_sections

    for name, content in gap_files(gaps).items():
        write_content(folder / name, content)
    if arguments.json:
        show_json(gap_document(gaps))
        return
    where = f"Everything is in {folder}"
    if not arguments.full and arguments.top is None:
        show_answer(brief_gaps(gaps, ends=[where]), full=False)
        return
    visible_sections = [section for section in sections(gaps) if section.visibility != "page"]
    show(*terminal_sections(visible_sections, top=arguments.top or _USUAL_TOP), where)
