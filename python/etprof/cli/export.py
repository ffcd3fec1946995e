"""Export a model: PyTorch in, a program and its description out.

Writes, into out_<model>/artifacts or where --outdir or --out says:
  <model>_<backend>_<precision>.pte            the program
  <...>.pte.etrecord                           its description, for ExecuTorch's tools and etprof
  <...>.pte.json                               the export manifest
  <...>.pte.delegation.json                    what is delegated and what is not, and why
  <...>.pte.data/                              example inputs and the eager model's outputs, raw
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.base.text import command_line
from etprof.cli.flags import (
    ALLOW_INACCURATE,
    FULL,
    INPUT,
    JSON,
    add_flags,
    decibels,
    name_list,
    share,
)
from etprof.cli.follow_up import flags_of_last_profile
from etprof.cli.output import answer
from etprof.cli.progress import ProgressLog, make_console

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.run.delegation import DelegationReport
    from etprof.run.program import ExportManifest, StageTime
    from etprof.tables.brief import AnswerLine


EXAMPLES = """\
examples:
  etprof export mobilenet_v3_small --dtype fp16
  etprof export toy_cnn --quantize int8 --explain
  etprof export path/to/net.py:Net --input 1x3x224x224 --input int64:1x17
  etprof export net.pt2 --dtype fp32 --outdir out
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.export.request import PRECISION_WORDS

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("name", str, "MODEL", "see `etprof models`; also path/to/file.py:Net, or FILE.pt2",
         {"nargs": "?"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dtype --precision", str, "PRECISION",
         f"fp16 (default), {', '.join(p for p in PRECISION_WORDS if p != 'fp16')}"),
        INPUT,
        ("--rewrite", name_list, "LIST", "apply these rewrites (see `etprof docs optimize`), or all",
         {"default": (), "dest": "rewrites"}),
        ("--explain", bool, "", "say why each node outside the delegate stays there"),
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("model"),
        ("--model --model-name", str, "MODEL", "MODEL as a flag"),
        ("--weights", Path, "FILE", "checkpoint with the model's weights"),
    )  # fmt: skip
    _add_lowering(parser)
    _add_precisions(parser)
    _add_thresholds(parser)
    add_flags(
        parser.add_argument_group("output"),
        ("--outdir", Path, "DIR", "folder of the files (default: out_<model>/artifacts)"),
        ("--out", Path, "FILE", "path of the program"),
        ("--graph", bool, "", "also write the lowered graphs, delegates' too, as text"),
        ("--trace", bool, "",
         "also write where the export's time goes (flame graph) and the memory plan (Chrome trace)"),
        ("--bundle", bool, "", "also write a .bpte with inputs and outputs inside"),
        ("--quiet", bool, "", "print errors only"),
        JSON,
    )  # fmt: skip


def _add_lowering(parser: argparse.ArgumentParser) -> None:
    """Declares what changes the program."""
    from etprof.backends.registry import BY_NAME, DEFAULT

    add_flags(
        parser.add_argument_group("lowering"),
        ("--backend", tuple(BY_NAME), "",
         f"delegate (default {DEFAULT}); portable for none"),
        ("--operators", name_list, "LIST", "delegate only these, such as linear,convolution",
         {"default": ()}),
        ("--config-precisions", name_list, "LIST", "which of the delegate's fp32, static_quant, dynamic_quant (default: all)",
         {"default": ()}),
        ("--channels-last", bool, "", "store image inputs as NHWC, as the delegate does"),
        ("--external-constants", bool, "", "write the weights into a .ptd beside the program"),
        ("--memory-planning", str, "PLANNER", "%(default)s (default) or naive",
         {"default": "greedy"}),
        ("--per-op", bool, "", "one delegate call per operator, which takes less memory",
         {"dest": "per_op_mode"}),
        ("--rewrite-except", name_list, "LIST",
         "modules that a rewrite leaves as they are, such as 'spelled_norms=encoder.*'",
         {"default": (), "dest": "rewrite_exclusions"}),
        ("--strict", bool, "",
         "fail where the runtime refuses an operator of the delegate, instead of leaving it outside"),
    )  # fmt: skip


def _add_precisions(parser: argparse.ArgumentParser) -> None:
    """Declares what has another precision than the rest."""
    from etprof.export.request import EMBEDDINGS

    add_flags(
        parser.add_argument_group("quantisation and mixed precision"),
        ("--quantize", str, "SCHEME",
         "quantise the float32 model: int8 (default) or any of the quantised precisions",
         {"nargs": "?", "const": "int8"}),
        ("--scope", name_list, "LIST",
         "parts in another precision: 'encoder.*=fp32' for modules, type:add=fp32 for operators",
         {"default": (), "dest": "scopes"}),
        ("--embeddings", EMBEDDINGS, "",
         "quantise nn.Embedding: a scale per row, or per 32 values with _b32"),
        ("--float-layers", name_list, "LIST", "modules that compute in float32, the same as --scope PATH=fp32",
         {"default": ()}),
        ("--keep-fp16-sums", bool, "",
         "leave norms and sums outside the delegate in fp16, as ExecuTorch computes them"),
    )  # fmt: skip


def _add_thresholds(parser: argparse.ArgumentParser) -> None:
    """Declares what is good enough beside the float32 model."""
    add_flags(
        parser.add_argument_group("what is good enough beside the float32 model"),
        ("--least-snr", decibels, "DB", "least signal-to-noise ratio; fp16 40, bf16 30, …"),
        ("--least-cosine", share, "C", "least cosine of both outputs, up to 1"),
        ("--least-top1", share, "P", "least share of rows with the same largest entry"),
        ("--text", Path, "FILE",
         "language models: text or token ids that both models read (default: a text of etprof's)"),
        ("--tokenizer", Path, "FILE", "language models: turns the text into token ids (default: its bytes)"),
        ALLOW_INACCURATE,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Exports the model, shows the delegation report and prints the paths."""
    from etprof.cli.progress import say
    from etprof.export.exporter import describe_replaced, export_model
    from etprof.run.program import refuse_inaccurate

    request = replace(make_request(arguments), allow_inaccurate=True)
    replaced = describe_replaced(request)
    files = export_model(request, None if arguments.quiet else StageProgress())
    if not arguments.quiet:
        for note in filter(None, (request.describe_holder(), replaced)):
            say(f"Note: {note}")
        _show(files, arguments, _without_rewrites(request))
    if not arguments.allow_inaccurate:
        refuse_inaccurate(files.pte)
    return 0


def make_request(arguments: argparse.Namespace) -> ExportRequest:
    """Returns what the flags ask for."""
    from etprof.backends.registry import DEFAULT
    from etprof.export.request import ExportOptions, ExportRequest
    from etprof.run.accuracy import Floors

    return ExportRequest(
        model=given_model(arguments),
        precision=_precision(arguments),
        backend=arguments.backend or DEFAULT,
        outdir=arguments.outdir,
        out=arguments.out,
        minimums={
            name: floor
            for name in Floors.model_fields
            if (floor := getattr(arguments, f"least_{name.removesuffix('_db')}")) is not None
        },
        text=arguments.text,
        tokenizer=arguments.tokenizer,
        strict=arguments.strict,
        options=ExportOptions(
            **{
                **{
                    option.name: getattr(arguments, option.name) for option in fields(ExportOptions)
                },
                "example_inputs": tuple(arguments.example_inputs),
                "scopes": (
                    *arguments.scopes,
                    *(f"{path}=fp32" for path in arguments.float_layers),
                ),
            }
        ),
    )


def _without_rewrites(request: ExportRequest) -> Path | None:
    """Returns the program of the same export without rewrites, where it exists."""
    plain = (
        replace(request, options=replace(request.options, rewrites=(), rewrite_exclusions=()))
        .files()
        .pte
    )
    return plain if plain != request.files().pte and plain.is_file() else None


def _show(files: ExportedFiles, arguments: argparse.Namespace, before: Path | None) -> None:
    from etprof.base.records import read_record
    from etprof.run.delegation import DelegationReport
    from etprof.run.program import ExportManifest

    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    against = () if before is None else ("--against", files.pte)
    show_export(
        arguments, manifest, report, files,
        explain=arguments.explain, measured=before, flags=against,
    )  # fmt: skip


def _next_profile(measured: Path, flags: tuple[str | Path, ...]) -> str:
    """Returns the profile that comes next, measured as the last one of its folder."""
    return f"Next: {command_line('profile', measured, *flags, *flags_of_last_profile(measured))}"


def show_export(  # noqa: PLR0913 - keyword-only: details of the answer
    arguments: argparse.Namespace,
    manifest: ExportManifest,
    report: DelegationReport | None,
    files: ExportedFiles,
    *,
    explain: bool = False,
    remarks: tuple[str, ...] = (),
    measured: Path | None = None,
    flags: tuple[str | Path, ...] = (),
) -> None:
    """Shows what came out of an export, and the profile that comes next.

    That is of `measured`, by default the program itself, with `flags`. Without a delegation report
    it is what is known without.
    """
    from etprof.run.delegation import DelegationReport, MethodReport
    from etprof.tables.brief import AnswerLine, Brief, UnbrokenLine
    from etprof.tables.export import (
        SCOPES,
        headline,
        kinds_table,
        possible_rewrites,
        rewrites_of,
        share_of_work,
        summary_table,
        undelegated_tables,
    )

    if report is None:
        nothing = {name: MethodReport() for name in manifest.methods}
        report = DelegationReport(model=manifest.model, methods=nothing)
    written = [str(path) for path in files.written()]
    outside = list(undelegated_tables(report, explain=explain))
    kinds = kinds_table(report)
    left_out = (f"{name} is left out: {why}" for name, why in manifest.rewrites_left_out.items())
    brief = Brief(
        (
            AnswerLine(headline(manifest, report)),
            *map(AnswerLine, remarks),
            *_detail_lines(manifest, report),
        ),
        bar=share_of_work(report),
        bar_title="Multiply-accumulates",
        table=outside[0] if outside else None,
        points=possible_rewrites(manifest, report),
        ends=(UnbrokenLine(f"Program: {files.pte}"), _next_profile(measured or files.pte, flags)),
        details=(
            summary_table(manifest, report),
            kinds,
            rewrites_of(manifest),
            SCOPES.of(manifest.scopes),
            *outside[1:],
            *left_out,
            *(f"library says: {line}" for line in manifest.log),
            *written,
        ),
    )
    document = {
        "manifest": manifest.model_dump(mode="json"),
        "delegation": report.model_dump(mode="json"),
        "operator_kinds": kinds.records(),
        "files": written,
    }
    answer(arguments, document, brief)


def _detail_lines(manifest: ExportManifest, report: DelegationReport) -> Iterator[AnswerLine]:
    """Yields what a text was read like, and each thing that was asked for and found nothing to do."""
    from etprof.backends.registry import BY_NAME
    from etprof.tables.brief import AnswerLine
    from etprof.tables.export import quality_lines, tell_fallbacks

    if manifest.assumption:
        yield AnswerLine(manifest.assumption, "yellow")
    yield from quality_lines(manifest.quality)
    yield from (AnswerLine(text, "yellow") for text in tell_fallbacks(manifest))
    for name, method in report.methods.items():
        backend = BY_NAME.get(manifest.backend)
        # Without a summary it is unknown what is delegated.
        is_known = backend is not None and backend.delegate and method.summary is not None
        if is_known and not method.delegates:
            text = f"nothing of {name} in {manifest.precision} is delegated to {manifest.backend}"
            yield AnswerLine(f"{text}: ExecuTorch's own kernels compute all of it", "yellow")
    for scope in manifest.scopes:
        if scope.missed:
            yield AnswerLine(f"{scope.scope} caught nothing that {scope.missed}", "yellow")


def given_model(arguments: argparse.Namespace) -> str:
    """Returns the model, given by position or by flag."""
    names = [name for name in (arguments.name, arguments.model) if name is not None]
    if len(names) != 1:
        raise UsageError(
            f"give one model, as in `etprof {arguments.command} toy_cnn`; `etprof models` lists them"
        )
    return str(names[0])


def _precision(arguments: argparse.Namespace) -> str:
    """Returns the precision; a quantised one starts from float32, so `--dtype fp16` contradicts."""
    if arguments.quantize is None:
        return "fp16" if arguments.dtype is None else str(arguments.dtype)
    if arguments.dtype not in (None, "fp32", arguments.quantize):
        raise UsageError(
            f"--quantize {arguments.quantize} starts from fp32; drop --dtype {arguments.dtype}"
        )
    return str(arguments.quantize)


class StageProgress:
    """Shows the running stage with a spinner, and each finished one with its time, on stderr.

    Where standard error is not a terminal, long stages alone: the export manifest has the times.
    """

    def __init__(self) -> None:
        self._console = make_console(on_error=True)
        self._console.quiet = not self._console.is_terminal
        self._status = self._console.status("")
        self._log = ProgressLog() if self._console.quiet else None

    def stage_started(self, name: str) -> None:
        """Starts the spinner."""
        if self._log is not None:
            self._log.update(f"export, {name}")
            self._log.start()
        self._status.update(f"{name} …")
        self._status.start()

    def stage_ended(self, stage: StageTime) -> None:
        """Replaces the spinner by a line."""
        from etprof.base.units import format_duration

        self.stage_failed()
        self._console.print(f"{stage.name:18} {format_duration(stage.duration_ns):>8}")

    def stage_failed(self) -> None:
        """Stops the spinner."""
        if self._log is not None:
            self._log.stop()
        self._status.stop()


def export_named(  # noqa: PLR0913 - what a command or a config says of a program
    name: str,
    *,
    precision: str | None = None,
    backend: str | None = None,
    allow_inaccurate: bool = False,
    way_out: str | None = "",
    scopes: tuple[str, ...] = (),
    example_inputs: tuple[str, ...] = (),
) -> Path:
    """Exports MODEL[:PRECISION] unless a program made of the same code is there.

    `precision` is that of a name without one, fp16 by default. `way_out` is said of a program that
    is there; with None it is exported again.
    """
    from etprof.backends.registry import DEFAULT
    from etprof.cli.progress import say
    from etprof.export.exporter import describe_replaced, export_model, find_export
    from etprof.export.request import (
        USUAL_PRECISION,
        ExportOptions,
        ExportRequest,
        split_precision,
    )
    from etprof.run.program import load_export_manifest

    model, named_precision = split_precision(name)
    request = ExportRequest(
        model=model,
        precision=named_precision or (USUAL_PRECISION if precision is None else precision),
        backend=backend or DEFAULT,
        allow_inaccurate=allow_inaccurate,
        options=ExportOptions(scopes=scopes, example_inputs=example_inputs),
    )
    if note := request.describe_holder():
        say(f"Note: {note}")
    earlier = None if way_out is None else find_export(request, any_options=True)
    program = request.files().pte
    if earlier is None:
        replaced = describe_replaced(request)
        export_model(request, StageProgress())
        if replaced:
            say(f"Note: {replaced}")
    else:
        say(f"Using {program}, exported earlier{_describe_options(earlier)}{way_out}")
    manifest = earlier or load_export_manifest(program)
    if manifest is not None and manifest.assumption:
        say(f"Note: {manifest.assumption}")
    return program


def _describe_options(manifest: ExportManifest) -> str:
    """Returns what the program differs in from one that is exported now, such as its weights."""
    from etprof.export.request import ExportOptions

    usual = asdict(ExportOptions())
    differing_options = [
        name.replace("_", "-")
        for name, value in manifest.options.items()
        if name not in {"trace", "graph", "bundle", "example_inputs"}
        and (value or None) != (usual.get(name) or None)
    ]
    return f" with {', '.join(differing_options)}" if differing_options else ""
