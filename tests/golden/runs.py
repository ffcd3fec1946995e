"""The known runs, and the parts of their reports that are held: tables, pages, drawings."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.known_runs import launch, on_off_run, write_run
from tests.world.host import etprof, simulated_host
from tests.world.reports import write_config
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

APPROVED: Final = Path(__file__).parent / "approved"
_DRAWN: Final = {"samples", "icicle", "icicle_changes"}
"""Long tables, which the drawings show."""
_OF_PASSES: Final = {
    "comparisons", "conditions", "instructions", "kernel_calls", "kernel_uses", "kernels", "latencies",
    "microkernels", "outputs", "threads", "tracer_costs", "work",
}  # fmt: skip
"""What a measured run has that the described one has not: of kernels, threads, outputs."""
_LONG_FRACTION: Final = re.compile(r"\d+\.\d{9,}")
"""Where the last digits are those of one build of NumPy."""


def described() -> dict[str, Any]:
    """The export's description of the on/off run's program: work, bytes, modules, reasons."""
    layers = [
        ("Conv2d", "stem", [1, 8, 16, 16], 800_000, 4_000),
        ("DepthwiseConv2d", "depthwise", [1, 8, 16, 16], 90_000, 8_000),
        ("Conv2d", "last", [1, 16, 8, 8], 500_000, 2_000),
    ]
    nodes = [
        {
            "index": i, "kind": kind, "operators": [name], "attribution": "exact", "macs": macs,
            "input_bytes": read, "output_bytes": 2 * read,
        }
        for i, (kind, name, _, macs, read) in enumerate(layers)
    ]  # fmt: skip
    operators = [
        {
            "name": name, "operator": "aten.convolution.default", "macs": macs, "delegate": 0,
            "debug_handle": 7 + i, "shape": shape, "input_bytes": read, "output_bytes": 2 * read,
            "origin": {
                "module_path": f"features.{i}.{name}", "module_type": kind,
                "source": {"file": "model.py", "line": 10 + i, "code": f"x = self.{name}(x)"},
            },
        }
        for i, (kind, name, shape, macs, read) in enumerate(layers)
    ]  # fmt: skip
    mean = {
        "name": "mean", "operator": "aten.mean.dim", "macs": 0, "shape": [1, 16], "instruction": 1,
        "input_bytes": 2048, "output_bytes": 32, "reason": "it reduces two dimensions",
        "origin": {"module_path": "head.pool", "module_type": "AdaptiveAvgPool2d"},
    }  # fmt: skip
    delegate = {
        "name": "d", "backend": "XnnpackBackend", "instruction": 0, "blob_bytes": 5000,
        "weight_bytes": 4000, "nodes": nodes,
    }  # fmt: skip
    method = {"operators": [*operators, mean], "delegates": [delegate]}
    return {"schema_version": 1, "model": "known", "methods": {"forward": method}}


def states() -> list[dict[str, object]]:
    """Ten blocks of launches in turns, with what the device said before and after each."""
    return [
        launch(
            name, block,
            {"frequency_khz": [2_000_000, 2_800_000 - 1000 * block],
             "governor": "schedutil", "temperatures_c": {"cpu": 40.0 + block},
             "thermal_status": "none"},
            {"frequency_khz": [2_000_000, 2_800_000],
             "governor": "schedutil", "temperatures_c": {"cpu": 41.5 + block},
             "thermal_status": "light" if block == 9 else "none"},
        )
        for block in range(10)
        for name in (("android_off", "android_sme2") if block % 2 else ("android_sme2", "android_off"))
    ]  # fmt: skip


def _write_described(folder: Path) -> None:
    run = replace(on_off_run(), delegation=described(), launches=states())
    write_run(folder / "run", run)


def measure(folder: Path) -> None:
    """All purposes, at one and two threads, on a machine whose times and kernels are known."""
    (folder / "m.pte").write_bytes(b"program")
    target = SimTarget(RunSpec(capabilities=Capabilities(platform="linux")))
    config = write_config(folder, folder / "m.pte", {"kind": "linux"}, ("off", "sme2"), counts=True)
    with simulated_host(lambda **_: target):
        done = etprof(folder, "run", config)
    assert done.exit_code == 0, done.stderr


RUNS: Final = {"described": _write_described, "measured": measure}


def write_reports(folder: Path, name: str) -> Mapping[str, str]:
    """Makes a run and its reports; returns what is held, by file name."""
    RUNS[name](folder)
    done = etprof(folder, "report", "run", "--format", "md,csv,html")
    assert done.exit_code == 0, done.stderr
    run = folder / "run"
    page = (run / "report.html").read_text("utf-8")
    held = _OF_PASSES if name == "measured" else None
    found = {f"{name}_tables.txt": _tables(run, held), f"{name}_drawings.txt": drawings(page)}
    if name != "measured":
        # Its figures are those of the tables.
        words = (run / "report.md").read_text("utf-8")
        found[f"{name}_report.md"] = words.partition("\n## Provenance")[0] + "\n"
    return found


def _tables(run: Path, held: Collection[str] | None) -> str:
    """Every table that has rows, or those that are held, a line for each row with its columns' names."""
    lines = []
    for path in sorted(run.glob("report_*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        table = path.stem.removeprefix("report_")
        if not rows or table in _DRAWN or (held and table not in held):
            continue
        lines.append(f"# {table}: {', '.join(rows[0])}")
        for row in rows:
            values = (f"{key}={rounded(value)}" for key, value in row.items() if value)
            lines.append("; ".join(values))
    return "\n".join(lines) + "\n"


def rounded(text: str) -> str:
    """Leaves out digits that differ between builds of NumPy."""
    return _LONG_FRACTION.sub(lambda found: f"{float(found[0]):.8g}", text)


def page_text(page: str) -> str:
    """What is to be read on a page, a line for each element; drawings and scripts left out."""
    body = page.partition("<main")[2].partition(">")[2]
    body = re.sub(r"<(svg|script|style).*?</\1>", "", body, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", body)
    return "\n".join(line for part in text.splitlines() if (line := " ".join(part.split())))


def drawings(page: str) -> str:
    """What is drawn: elements with a size, and the pictures."""
    body = page.partition("<body")[2]
    parts = re.findall(r"<svg.*?</svg>|<[^>]* style=\"[^>]*>", body, re.DOTALL)
    return "\n".join(part.replace("><", ">\n<") for part in parts) + "\n"
