"""Export a model: PyTorch in, a program and its description out.

Writes, into out_<model>/artifacts or where --outdir or --out says:
  <model>_<backend>_<precision>.pte            the program
  <...>.pte.etrecord                           its description, for ExecuTorch's tools and etprof
  <...>.pte.json                               the export manifest
  <...>.pte.delegation.json                    what is delegated and what is not, and why
  <...>.pte.data/                              example inputs and the eager model's outputs, raw
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.base.text import clean_lines

if TYPE_CHECKING:
    import argparse

    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.run.program import StageTime


EXAMPLES = """\
examples:
  etprof export mobilenet_v3_small --dtype fp16
  etprof export toy_cnn --quantize int8 --explain
  etprof export --model path/to/my_model.py:MyModel --outdir out
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    parser.add_argument("name", nargs="?", metavar="MODEL", help="see `etprof models`")
    parser.add_argument(
        "--model",
        "--model-name",
        metavar="MODEL",
        help="the same as a flag; also path/to/file.py:ClassName",
    )
    parser.add_argument(
        "--dtype",
        "--precision",
        metavar="PRECISION",
        help="fp16 (default), fp32, int8, int8_per_tensor, int8_dynamic, 8da4w, 8da4w_b<BLOCK>",
    )
    parser.add_argument(
        "--quantize",
        nargs="?",
        const="int8",
        metavar="SCHEME",
        help="quantise the float32 model: int8 (default) or any of the quantised precisions",
    )
    parser.add_argument(
        "--backend", help="the delegate that takes what it can (default), or portable for none"
    )
    parser.add_argument(
        "--outdir",
        type=Path,
        metavar="DIR",
        help="folder of the files (default out_<model>/artifacts)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the program's own path")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="a checkpoint of the model")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")
    _add_insight_arguments(parser.add_argument_group("insight"))
    _add_lowering_arguments(parser.add_argument_group("lowering"))


def _add_insight_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--explain", action="store_true", help="say of every node why it stays out")
    group.add_argument(
        "--graph",
        action="store_true",
        help="also write the lowered graphs, delegates' too, as text",
    )
    group.add_argument(
        "--trace",
        action="store_true",
        help="also draw where the time goes (flame graph) and the memory plan (Chrome traces)",
    )


def _add_lowering_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--channels-last",
        action="store_true",
        help="store image inputs as NHWC, as the delegate does",
    )
    group.add_argument(
        "--external-constants", action="store_true", help="weights into a .ptd beside the program"
    )
    group.add_argument(
        "--bundle", action="store_true", help="also write a .bpte with inputs and outputs inside"
    )
    group.add_argument(
        "--memory-planning", default="greedy", metavar="PLANNER", help="greedy (default) or naive"
    )
    group.add_argument(
        "--operators", metavar="LIST", help="delegate only these, such as linear,convolution"
    )
    group.add_argument(
        "--config-precisions", metavar="LIST", help="of fp32,static_quant,dynamic_quant; all"
    )
    group.add_argument(
        "--per-op", action="store_true", help="one delegate call per operator: less memory"
    )


def run(arguments: argparse.Namespace) -> int:
    """Exports the model, shows the delegation report and prints the paths."""
    from etprof.export.exporter import export_model

    files = export_model(make_request(arguments), None if arguments.quiet else StageProgress())
    if not arguments.quiet:
        _show(files, explain=arguments.explain)
    return 0


def make_request(arguments: argparse.Namespace) -> ExportRequest:
    """Returns what the flags ask for."""
    from etprof.backends.registry import DEFAULT
    from etprof.export.request import ExportOptions, ExportRequest

    return ExportRequest(
        model=_model_name(arguments),
        precision=_precision(arguments),
        backend=arguments.backend or DEFAULT,
        outdir=arguments.outdir,
        out=arguments.out,
        options=ExportOptions(
            weights=arguments.weights,
            operators=_split(arguments.operators),
            config_precisions=_split(arguments.config_precisions),
            per_op_mode=arguments.per_op,
            external_constants=arguments.external_constants,
            memory_planning=arguments.memory_planning,
            channels_last=arguments.channels_last,
            bundle=arguments.bundle,
            graph=arguments.graph,
            trace=arguments.trace,
        ),
    )


def _split(text: str | None) -> tuple[str, ...]:
    """Returns the words of a comma-separated list."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _show(files: ExportedFiles, *, explain: bool) -> None:
    from rich.console import Console

    from etprof.base.records import read_record
    from etprof.run.delegation import DelegationReport
    from etprof.run.program import ExportManifest
    from etprof.tables.export import hints, summary_table, undelegated_tables
    from etprof.views.terminal import terminal_table

    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    console = Console()
    for table in (summary_table(manifest, report), *undelegated_tables(report, explain=explain)):
        console.print(terminal_table(table))
    for line in (*hints(manifest, report), *(f"library says: {each}" for each in manifest.log)):
        print(line)
    for path in files.written():
        print(clean_lines(str(path)))


def _model_name(arguments: argparse.Namespace) -> str:
    """Returns the model, given by position or by flag."""
    names = [name for name in (arguments.name, arguments.model) if name is not None]
    if len(names) != 1:
        msg = "give one model, as in `etprof export toy_cnn`; `etprof models` lists them"
        raise UsageError(msg)
    return str(names[0])


def _precision(arguments: argparse.Namespace) -> str:
    """Returns the precision; a quantised one starts from float32, so `--dtype fp16` contradicts."""
    if arguments.quantize is None:
        return "fp16" if arguments.dtype is None else str(arguments.dtype)
    if arguments.dtype not in (None, "fp32", arguments.quantize):
        msg = f"--quantize {arguments.quantize} starts from fp32; drop --dtype {arguments.dtype}"
        raise UsageError(msg)
    return str(arguments.quantize)


class StageProgress:
    """Shows the running stage with a spinner, and each finished one with its time, on stderr.

    Nothing when standard error is not a terminal: the export manifest has the times.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=sys.stderr)
        self._console.quiet = not self._console.is_terminal
        self._status = self._console.status("")

    def stage_started(self, name: str) -> None:
        """Starts the spinner."""
        self._status.update(f"{name} …")
        self._status.start()

    def stage_ended(self, stage: StageTime) -> None:
        """Replaces the spinner by a line."""
        from etprof.base.units import format_duration

        self._status.stop()
        self._console.print(f"{stage.name:18} {format_duration(stage.duration_ns):>8}")
