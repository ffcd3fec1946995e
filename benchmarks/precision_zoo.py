"""Exports models in every precision and prints how right each program is.

    python benchmarks/precision_zoo.py [--outdir DIR] [--models LIST] [--precisions LIST] [--into FILE]

The models are the zoo's and transformers' architectures in small sizes, with random weights; those
whose package is not here are left out and told. Each export runs on this host and answers both
questions on its outputs (docs/export.md): a row passes, or says why not and at which operator, which
`etprof numerics` finds. A row that is as exact as float32 under another name has failed. The table is
Markdown; `--into` puts it between the marks of a page. `--outdir` keeps each model's rows, and a second
call continues where the first stopped. The exit code is 1 when a row neither passed nor says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from etprof.base.atomic import write_json, write_text
from etprof.base.errors import EtprofError
from etprof.base.records import read_record
from etprof.base.units import format_share, format_size, format_value
from etprof.export.exporter import export_model
from etprof.export.model_loading import describe_models
from etprof.export.request import PRECISIONS, ExportRequest
from etprof.numerics.session import GapRequest, compare_with_eager
from etprof.run.delegation import DelegationReport
from etprof.run.program import ExportCheck, ExportManifest, MethodFiles
from etprof.targets.local import LocalTarget

USUAL = ("fp32", "fp16", "int8", "8da4w")
MARKS = ("<!-- precision_zoo.py -->", "<!-- end of precision_zoo.py -->")
LIKE_FLOAT32_DB = 90.0
"""Nothing that was rounded to halves or integers is so near to float32: those end at 75 dB."""
COLUMNS = (
    "model", "method", "precision", "answer", "eager's SNR to fp32", "SNR to fp32",
    "SNR to converted", "cosine",
    "same top-1", "in float32", "delegated MACs", "SME2 MACs (predicted)", "size", "why not",
)  # fmt: skip
_TEXT = {
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512,
    "vocab_size": 512, "max_position_embeddings": 64, "use_cache": False,
}  # fmt: skip
_DECODER = {**_TEXT, "num_hidden_layers": 1}
_GPT2 = {"n_embd": 256, "n_layer": 1, "n_head": 4, "n_positions": 64, "vocab_size": 512}
_HEADS = {**_DECODER, "num_key_value_heads": 2, "head_dim": 64, "pad_token_id": 0}
_IMAGE = {
    "hidden_size": 192, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 384,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
_STAGES = {"image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256]}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "albert": {**_TEXT, "embedding_size": 128}, "bert": _TEXT, "camembert": _TEXT,
    "convbert": _TEXT, "distilbert": {"dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 512,
                                      "vocab_size": 512},
    "electra": {**_TEXT, "embedding_size": 128}, "ernie": _TEXT, "mpnet": _TEXT, "roberta": _TEXT,
    "roformer": {**_TEXT, "embedding_size": 256}, "squeezebert": {**_TEXT, "embedding_size": 256},
    "xlm-roberta": _TEXT, "gpt2": _GPT2, "gpt_neox": _DECODER, "gemma": _HEADS, "llama": _HEADS,
    "mistral": _HEADS, "olmo": _HEADS, "opt": {**_DECODER, "ffn_dim": 512, "word_embed_proj_dim": 256},
    "phi": _DECODER, "qwen2": _HEADS, "qwen3": _HEADS, "stablelm": _HEADS,
    "beit": {**_IMAGE, "layer_scale_init_value": 1.0},
    "convnext": {**_STAGES, "layer_scale_init_value": 1.0}, "convnextv2": _STAGES,
    "deit": _IMAGE, "dinov2": _IMAGE,
    "mobilenet_v1": {"image_size": 64, "depth_multiplier": 0.25},
    "poolformer": {**_STAGES, "layer_scale_init_value": 1.0},
    "regnet": {**_STAGES, "embedding_size": 32, "groups_width": 16},
    "resnet": {**_STAGES, "embedding_size": 32}, "segformer": _STAGES, "vit": _IMAGE,
}  # fmt: skip
"""Of transformers, each with what makes it small; blocks count as much as what goes past them."""


class First(nn.Module):
    """A transformers model that returns its first output alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps token ids or an image to the first output."""
        result: torch.Tensor = self.network(x, return_dict=False)[0]
        return result


class _Architecture:
    """A model as etprof exports it."""

    kind = ""
    requirements = ("transformers",)

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        from transformers import AutoConfig, AutoModel

        torch.manual_seed(0)
        config = AutoConfig.for_model(self.kind, **ARCHITECTURES[self.kind])
        network = First(AutoModel.from_config(config).eval())
        if any(isinstance(each, nn.BatchNorm2d) for each in network.modules()):
            # The zoo's own way to let a signal through; its package is beside this folder.
            sys.path.append(str(Path(__file__).parents[1]))
            from models.batch_norms import settle_batch_norms

            settle_batch_norms(network, [(torch.randn(32, 3, 64, 64),)])
        return network

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        """Returns 32 token ids, or one small image."""
        generator = torch.Generator().manual_seed(1)
        if "image_size" in ARCHITECTURES[self.kind]:
            return (torch.randn(1, 3, 64, 64, generator=generator),)
        return (torch.randint(1, 512, (1, 32), generator=generator),)


def _class_name(kind: str) -> str:
    return f"Hf_{kind.replace('-', '_')}"


def model_of(name: str) -> str:
    """Returns how etprof is told of an architecture of this table, or of a model of the zoo."""
    return f"{Path(__file__)}:{_class_name(name)}" if name in ARCHITECTURES else name


for _kind in ARCHITECTURES:
    globals()[_class_name(_kind)] = type(_class_name(_kind), (_Architecture,), {"kind": _kind})


@dataclass(frozen=True)
class Row:
    """One method of one export."""

    cells: Sequence[str]
    answer: str
    reason: str

    @property
    def is_told(self) -> bool:
        """Whether it passed, or says why not."""
        return self.answer == "passed" or bool(self.reason)

    def render(self) -> str:
        """Returns the row in Markdown."""
        reason = self.reason.replace("|", "\\|").replace("\n", " ")
        return f"| {' | '.join((*self.cells, reason))} |"


def main() -> int:
    """Prints the table and the sum; returns 1 when a row passes over something in silence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=USUAL)
    parser.add_argument("--into", type=Path)
    arguments = parser.parse_args()
    table = table_head(COLUMNS)
    print("\n".join(table), flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        for model in arguments.models or [*find_loadable(), *ARCHITECTURES]:
            for precision in arguments.precisions:
                found = _measure_once(model, precision, arguments.outdir or Path(temporary))
                print("\n".join(row.render() for row in found), flush=True)
                rows += found
    passed = sum(row.answer == "passed" for row in rows)
    told = sum(row.is_told for row in rows)
    summary = f"{passed} of {len(rows)} passed, {told - passed} say why not"
    print(f"\n{summary}", file=sys.stderr)
    if arguments.into is not None:
        put(arguments.into, MARKS, [*table, *(row.render() for row in rows), "", f"{summary}."])
    return 0 if told == len(rows) else 1


def table_head(columns: Sequence[str]) -> list[str]:
    """Returns the two lines that begin a table in Markdown."""
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def put(page: Path, marks: tuple[str, str], lines: list[str]) -> None:
    """Replaces what stands between the marks of a page."""
    before, _, rest = page.read_text().partition(marks[0])
    _, mark, after = rest.partition(marks[1])
    if not mark:
        sys.exit(
            f"{page} has no {marks[0]} with {marks[1]} after it; write both on lines of their own"
        )
    write_text(page, "\n".join([before + marks[0], "", *lines, "", marks[1] + after]))


def _measure_once(model: str, precision: str, folder: Path) -> list[Row]:
    """Returns the rows of one export, those that are there already where an earlier call kept them."""
    kept = folder / f"{model}_{precision}.rows.json"
    if not kept.is_file():
        with tempfile.TemporaryDirectory() as program:
            rows = _measure(model, precision, Path(program))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(kept, [astuple(row) for row in rows])
    return [Row(*each) for each in json.loads(kept.read_text())]


def find_loadable() -> list[str]:
    """Returns the names of all models whose packages are there; the others are told on stderr."""
    models = describe_models()
    for model in models:
        if model["problem"] is not None:
            print(f"left out: {model['problem']}", file=sys.stderr)
    return [model["name"] for model in models if model["problem"] is None]


def _measure(model: str, precision: str, folder: Path) -> list[Row]:
    """Exports once; returns one row per method."""
    request = ExportRequest(model_of(model), precision, outdir=folder, allow_inaccurate=True)
    assert precision in PRECISIONS or "_b" in precision
    files = request.files()
    try:
        export_model(request)
    except EtprofError as error:
        missing = ("–",) * (len(COLUMNS) - 5)
        return [Row((model, "", precision, "not exported", *missing), "not exported", str(error))]
    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    return [_make_row(model, manifest, report, name) for name in report.methods]


def _make_row(model: str, manifest: ExportManifest, report: DelegationReport, method: str) -> Row:
    files, summary = manifest.methods[method], report.methods[method].summary
    assert files.check is not None
    lowering, precision = files.check.verdicts
    answers = {lowering.answer, precision.answer}
    answer: str = next(each for each in ("failed", "unknown", "passed") if each in answers)
    exact = precision.snr_db is None or precision.snr_db > LIKE_FLOAT32_DB
    if answer == "passed" and exact and manifest.precision != "fp32":
        answer = "silent"
    cells = (
        model,
        method,
        manifest.precision,
        answer,
        _eager_ratio(files.check),
        *(
            "equal" if each.snr_db is None and each.answer == "passed" else _ratio(each.snr_db)
            for each in (precision, lowering)
        ),
        "–" if precision.cosine is None else str(round(precision.cosine, 5)),
        format_share(precision.top1),
        _widened(files),
        format_share(summary.delegated_macs_share if summary else None),
        format_share(summary.predicted_sme2_macs_share if summary else None),
        format_size(report.size.total_bytes if report.size else None),
    )
    reasons = dict.fromkeys(each.reason for each in (lowering, precision) if each.reason)
    if answer == "failed":
        reasons[_locate(model, manifest.precision, method, precision.least_snr_db or 0)] = None
    return Row(cells, answer, "; ".join(reasons))


def _locate(model: str, precision: str, method: str, least_db: float) -> str:
    """Says at which operator the values fall below the floor, and what the program itself adds."""
    request = GapRequest(export=ExportRequest(model_of(model), precision), method=method)
    try:
        gaps = compare_with_eager(request, LocalTarget())
    except EtprofError as error:
        return f"no operator is named: {error}"
    mode = gaps.modes[0]
    parted, most = gaps.first_parted(mode), gaps.ranked(mode)[0]
    below = (
        f"below it from {row.operator} {row.node} in {row.module or 'the model'} on "
        f"({_ratio(row.float32.snr_db)})"
        for row in gaps.rows
        if row.float32 is not None and row.float32.is_below(least_db)
    )
    first = next(below, "above it at every operator that float32 has too")
    if parted is not None:
        return f"{first}; parts from eager first at {parted.operator} {parted.node}"
    return (
        f"{first}; the lowering adds to no operator more than roundings explain (most in "
        f"{most.operator} {most.node}, {_ratio(most.own_gap.snr_db)} of its own, where "
        f"{_ratio(most.explained.least_db)} are explained)"
    )


def _eager_ratio(check: ExportCheck) -> str:
    """Returns how near eager PyTorch in the program's precision is to float32, at its worst output."""
    ratios = [output.snr_db_precision for output in check.outputs]
    known = [ratio for ratio in ratios if ratio is not None]
    return _ratio(min(known)) if known else "equal"


def _ratio(snr_db: float | None) -> str:
    return "–" if snr_db is None else format_value("dB", snr_db)


def _widened(files: MethodFiles) -> str:
    return str(sum(files.widened.values()))


if __name__ == "__main__":
    sys.exit(main())
