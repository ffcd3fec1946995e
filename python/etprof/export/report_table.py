"""Shows an export's manifest and delegation report in the terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.units import MISSING, format_count, format_share, format_size

if TYPE_CHECKING:
    from rich.console import Console

_LAYER_NORM_HINT = (
    "hint: ExecuTorch's layer-norm kernel sums fp16 values in fp16 and loses most of them; compute "
    "nn.LayerNorm in float32, as models/layer_norm.py does"
)


def print_report(
    console: Console, manifest: dict[str, Any], report: dict[str, Any], *, explain: bool
) -> None:
    """Prints the summary, what is not delegated and why; with `explain`, node by node."""
    console.print(make_summary(manifest, report))
    for name, method in report["methods"].items():
        table = list_undelegated(method) if explain else group_undelegated(method)
        if table.row_count:
            table.title = Text(f"not delegated in {name}")
            console.print(table)
        if _has_bad_layer_norm(manifest["methods"][name]["check"], method, report["precision"]):
            console.print(Text(_LAYER_NORM_HINT))
    for line in manifest["log"]:
        console.print(Text(f"library says: {line}"))


def make_summary(manifest: dict[str, Any], report: dict[str, Any]) -> PlainTable:
    """Returns one column per method and one row per figure."""
    methods = report["methods"]
    table = PlainTable("", *methods, show_header=len(methods) > 1)
    for title, key, shown in (
        ("delegate calls", "delegate_calls", format_count),
        ("operators in the delegate", "delegated_operators", format_count),
        ("operators outside", "undelegated_operators", format_count),
        ("multiply-accumulates", "macs", format_count),
        ("  of them in the delegate", "delegated_macs_share", format_share),
        ("  with an SME2 kernel (predicted)", "predicted_sme2_macs_share", format_share),
    ):
        table.add_row(title, *(shown(each["summary"][key]) for each in methods.values()))
    table.add_row("planned memory", *(_plan(each["memory"]) for each in methods.values()))
    checks = [manifest["methods"][name]["check"] for name in methods]
    table.add_row("distance from eager fp32", *map(_distance, checks))
    if any("bundle" in check for check in checks):
        table.add_row("bundled test case", *(_bundle(check["bundle"]) for check in checks))
    size = report["size"]
    parts = ("program", "delegate", "constant", "padding", "external")
    split = ", ".join(
        f"{part} {format_size(size[f'{part}_bytes'])}" for part in parts if size[f"{part}_bytes"]
    )
    table.caption = f"{format_size(size['total_bytes'])}: {split}"
    return table


def _plan(memory: dict[str, Any]) -> str:
    return " + ".join(format_size(size) for size in memory["arena_bytes"]) or MISSING


def _distance(check: dict[str, Any]) -> str:
    """Returns the worst output's distance, and whether it is more than the precision explains."""
    ratios = [each["snr_db"] for each in check["outputs"] if each["snr_db"] is not None]
    if not ratios:
        return "none"
    note = "" if check["passed"] else f", expected at least {check['minimum_snr_db']:g} dB"
    return f"{min(ratios):.1f} dB{note}"


def _bundle(found: dict[str, Any]) -> str:
    """Returns what ExecuTorch's own runtime said of the bundled program."""
    if found["passed"]:
        return f"verified by ExecuTorch to ±{found['absolute_tolerance']:.2g}"
    verdict = "not verified" if found["passed"] is None else "differs"
    return f"{verdict}: {found['problem']}"


def _has_bad_layer_norm(check: dict[str, Any], method: dict[str, Any], precision: str) -> bool:
    """Tells whether a method that is too far from eager runs layer norms in fp16."""
    norms = any("layer_norm" in each["operator"] for each in _outside(method))
    return precision == "fp16" and not check["passed"] and norms


def _outside(method: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the operators that run outside the delegates; views that cost nothing do not."""
    return [
        each
        for each in method["operators"]
        if each["delegate"] is None and each["instruction"] is not None
    ]


def group_undelegated(method: dict[str, Any]) -> PlainTable:
    """Returns the operators outside the delegate by kind and reason, most frequent first."""
    counts = Counter((each["operator"], each["reason"]) for each in _outside(method))
    table = PlainTable("operator", "count", "reason")
    for (operator, reason), count in counts.most_common():
        table.add_row(Text(operator), str(count), Text(reason))
    return table


def list_undelegated(method: dict[str, Any]) -> PlainTable:
    """Returns every operator outside the delegate with its module and source line."""
    table = PlainTable("operator", "module", "source", "reason")
    for each in _outside(method):
        origin = each["origin"]
        table.add_row(
            Text(each["operator"]),
            Text(origin["module_path"] or origin["module_type"]),
            Text(_source(origin["source"])),
            Text(each["reason"]),
        )
    return table


def _source(source: dict[str, Any] | None) -> str:
    if source is None:
        return MISSING
    return f"{PurePath(source['file']).name}:{source['line']}  {source['code']}"
