"""Export a language model as ExecuTorch's own examples do, from their YAML.

Runs `executorch.extension.llm.export.export_llm` as a process, for every architecture that it knows,
and writes what `etprof export` writes: the program, its ETRecord, the export manifest with all that
was asked, and the delegation report; also what ExecuTorch said, as <...>.pte.log.

Weights are those of base.checkpoint. Without one they are random, drawn with one seed: the speed is
the same, the text is not. Nothing is downloaded without --download.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import FULL, JSON, add_flags, duration
from etprof.cli.output import answer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from etprof.export_llm.planning import LlmPlan

EXAMPLES = """\
examples:
  etprof export-llm tiny_llama.yaml --dry-run
  etprof export-llm tiny_llama.yaml -o tiny_llama.pte
  etprof profile tiny_llama.pte --generate 32 --prompt-tokens 11,42,7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("config", Path, "CONFIG.yaml", "what export_llm takes; see `etprof docs llm`"),
        ("-o --out", Path, "FILE", "the program's own path"),
        ("--outdir", Path, "DIR", "folder of the files (default out_<config>/artifacts)"),
        ("--download", bool, "", "let ExecuTorch fetch weights and calibration data"),
        ("--so-library", Path, "FILE", "native library of operators that ExecuTorch loads: its code runs"),
        ("--timeout", duration, "TIME", "stop an export that takes longer (default 2h)",
         {"default": 7200.0}),
        ("--dry-run", bool, "", "check the YAML and its files, export nothing"),
        ("--quiet", bool, "", "show nothing but errors"),
        FULL, JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Exports and shows what came out."""
    from etprof.base.records import read_record
    from etprof.cli.export import StageProgress, show_export
    from etprof.export_llm.exporting import export_llm
    from etprof.export_llm.planning import LlmRequest, plan_export
    from etprof.run.delegation import DelegationReport
    from etprof.run.program import ExportManifest

    plan = plan_export(
        LlmRequest(
            config=arguments.config,
            out=arguments.out,
            outdir=arguments.outdir,
            download=arguments.download,
            so_library=arguments.so_library,
            timeout_s=arguments.timeout,
        )
    )
    if arguments.dry_run:
        _show_plan(arguments, plan)
        return 0
    files = export_llm(plan, None if arguments.quiet else StageProgress())
    if arguments.quiet:
        return 0
    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = (
        read_record(DelegationReport, files.report, way_out="export again")
        if files.report.is_file()
        else None
    )
    show_export(
        arguments,
        manifest,
        report,
        files,
        remarks=(*_plan_summary(plan), *manifest.log),
        flags=_NEXT,
    )
    return 0


_NEXT = ("--generate", "32", "--prompt-tokens", "1,2,3")


def _plan_summary(plan: LlmPlan) -> Iterator[str]:
    weights = {
        "random": "random, for base.checkpoint is not given: its text means nothing",
        "checkpoint": "of base.checkpoint",
        "downloaded": "fetched by ExecuTorch",
    }
    context = plan.settings.get("export.max_context_length")
    yield f"Architecture: {plan.settings.get('base.model_class')}; weights: {weights[plan.weights]}"
    yield f"Cache: {context} tokens, {plan.settings.get('export.max_seq_length')} at once"


def _show_plan(arguments: argparse.Namespace, plan: LlmPlan) -> None:
    from etprof.base.text import clean
    from etprof.tables.brief import AnswerLine, Brief, UnbrokenLine

    name = f"{plan.name} {plan.precision} for {plan.backend}"
    brief = Brief(
        (AnswerLine(f"{name}: the YAML and its files can be used; nothing was exported"),),
        lines=(
            *_plan_summary(plan),
            *(
                f"Reads {setting}: {clean(file['path'])} as {file['read_as']}"
                for setting, file in plan.reads().items()
            ),
            UnbrokenLine(f"Program: {plan.files.pte}"),
        ),
    )
    document = {"asked": plan.record(), "reads": plan.reads(), "program": str(plan.files.pte)}
    answer(arguments, document, brief)
