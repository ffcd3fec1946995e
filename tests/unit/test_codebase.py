"""The rules of CONTRIBUTING that a machine can check: layers, sizes, presets, versions."""

from __future__ import annotations

import ast
import functools
import graphlib
import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import etprof

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "etprof"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each part may import the parts named, and itself; parts are modules or folders of the package.
LEAVES = {"base", "errors", "units", "process", "atomic", "records", "html_template"}
MEASURING = LEAVES | {
    "generation",
    "plan",
    "program_files",
    "run_directory",
    "runner_result",
    "targets",
}
ALLOWED: dict[str, set[str]] = {
    "base": {"errors"},
    "errors": set(),
    "units": set(),
    "process": {"errors"},
    "atomic": {"base", "errors"},
    "records": {"base", "errors"},
    "html_template": set(),
    "runner_result": {"records"},
    "run_directory": {"atomic", "base", "errors", "records", "runner_result"},
    "program_files": {"errors", "records", "run_directory"},
    "etdump": {"base", "errors", "etdump_columns", "_etdump"},
    "etdump_columns": set(),
    "etdump_plausibility": {"etdump"},
    "order_statistics": set(),
    "tokenizer": {"base", "errors"},
    "generation": {"base", "errors", "tokenizer"},
    "plan": {"generation"},
    "cpu_list": set(),
    "config_problems": set(),
    "config_templates": {"errors", "configs"},
    "validation": LEAVES | {"etdump", "etdump_plausibility", "resume", "run_directory"},
    "config": {"base", "config_problems", "cpu_list", "errors"},
    "targets": LEAVES | {"emulator", "generation", "runner_result"},
    "emulator": LEAVES,
    "conditions": {"plan", "targets"},
    "launching": MEASURING | {"conditions"},
    "metrics": {"generation", "launching", "plan", "run_directory", "runner_result", "tokenizer"},
    "stopping": {"order_statistics", "runner_result"},
    "journal": MEASURING | {"git_state"},
    "pipeline": MEASURING | {"journal", "launching", "metrics", "stopping"},
    "resume": MEASURING | {"launching", "pipeline"},
    "configured_run": MEASURING | {"config"},
    "starting": {"base", "config", "errors", "targets"},
    "bench": MEASURING
    | {
        "analysis",
        "config",
        "config_problems",
        "configured_run",
        "cpu_list",
        "export",
        "git_state",
        "history",
        "pipeline",
        "registry",
        "report",
        "resume",
    },
    "evidence_pipeline": MEASURING | {"analysis"},
    "analysis": LEAVES
    | {
        "etdump",
        "etdump_plausibility",
        "order_statistics",
        "program_files",
        "run_directory",
        "runner_result",
    },
    "report": LEAVES
    | {"analysis", "etdump", "etdump_columns", "etdump_plausibility", "run_directory"},
    "git_state": {"errors", "process"},
    "dashboard": LEAVES | {"history", "report"},
    "history": LEAVES
    | {"analysis", "order_statistics", "report", "run_directory", "runner_result"},
    "api": LEAVES | {"analysis", "api_frames", "order_statistics", "report"},
    "api_frames": {"analysis", "etdump", "etdump_plausibility", "report"},
    "registry": {"base", "errors", "export"},
    "etrecord": LEAVES | {"export", "program_files"},
    "export": LEAVES | {"git_state", "registry", "etrecord", "targets"},
    "doctor": LEAVES | {"emulator", "targets"},
}
HEAVY = {"torch", "executorch", "torchao", "transformers"}
MAY_IMPORT_TORCH = {"export", "etrecord"}
UNCHECKED = {"cli", "__main__", "__init__"}


@functools.cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def part_of(module: Path) -> str:
    return part_among(module.relative_to(PACKAGE).with_suffix("").parts)


def part_among(names: Sequence[str]) -> str:
    """The modules of measuring/ are parts of their own: their order matters most."""
    return names[1] if names[0] == "measuring" and len(names) > 1 else names[0]


def imported_names(module: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(module: Path) -> set[str]:
    names = [name.split(".") for name in imported_names(module)]
    found = {part_among(name[1:]) for name in names if name[0] == "etprof" and len(name) > 1}
    return found - {"__version__"}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_arrows(module: Path) -> None:
    part = part_of(module)
    if part in UNCHECKED:
        return
    assert part in ALLOWED, f"{part} is new: give it its place in the table of this test"
    wrong = imported_parts(module) - ALLOWED[part] - {part}
    assert not wrong, f"{part} may not import {sorted(wrong)}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    def dotted(module: Path) -> str:
        return ".".join(("etprof", *module.relative_to(PACKAGE).with_suffix("").parts))

    names = {dotted(module): module for module in MODULES}
    arrows = {
        name: {
            found
            for imported in imported_names(module)
            for found in (imported, imported.rpartition(".")[0])
            if found in names and found != name
        }
        for name, module in names.items()
    }
    assert sum(map(len, arrows.values())) > len(names)
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_export_imports_torch_or_executorch(module: Path) -> None:
    heavy = {name.split(".")[0] for name in imported_names(module)} & HEAVY
    assert not heavy or part_of(module) in MAY_IMPORT_TORCH


def test_only_one_module_imports_the_native_reader() -> None:
    importers = {part_of(module) for module in MODULES if "_etdump" in imported_parts(module)}
    assert importers == {"etdump"}


def test_only_one_module_starts_processes() -> None:
    starters = {
        str(module.relative_to(PACKAGE))
        for module in MODULES
        if {name.split(".")[0] for name in imported_names(module)} & {"subprocess", "pty"}
    }
    assert starters == {"process.py"}


def test_only_one_file_includes_pybind11() -> None:
    sources = [*ROOT.glob("cpp/**/*.cpp"), *ROOT.glob("cpp/**/*.h")]
    users = {path.name for path in sources if "#include <pybind11" in path.read_text()}
    assert users == {"module.cpp"}


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, its docstring apart."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_small() -> None:
    sizes = {f"{m.name}:{f.name}": code_lines(f) for m in MODULES for f in functions(m)}
    too_long = {name: size for name, size in sizes.items() if size > 50}
    assert not too_long
    assert statistics.median(sizes.values()) < 10


@pytest.mark.parametrize("folder", ["python", "cpp", "tests", "models", "benchmarks"])
def test_files_are_short(folder: str) -> None:
    files = [p for s in ("py", "cpp", "h", "S") for p in (ROOT / folder).rglob(f"*.{s}")]
    too_long = [str(p) for p in files if len(p.read_text().splitlines()) > 600]
    assert not too_long


READING_CALLS = {
    ("json", "load"), ("json", "loads"), ("np", "load"), ("np", "fromfile"), ("torch", "load"),
}  # fmt: skip
READING_METHODS = {"read_text", "read_bytes", "model_validate_json", "open"}
READS_ITSELF = {
    "atomic.py": "writes",
    "base/files.py": "the reading module",
    "base/json_input.py": "the reading module",
    "bench/archives.py": "archives in memory, by members and bytes",
    "cli/__init__.py": "the null device",
    "config_templates.py": "installed files",
    "dashboard/run_report.py": "follows no link; checks kind and size itself",
    "emulator/apt.py": "/etc/os-release",
    "emulator/cache.py": "a lock of its own",
    "etrecord/archive.py": "parts of an archive that is open already, each with its bound",
    "export/bundle_runtime.py": "a process of its own, for the file that was written just before",
    "export/model_loading.py": "PyTorch's reader, of a file that is open already",
    "export/output.py": "writes",
    "export/xnnpack_graph.py": "flatc's answer: its schema bounds depth; infinities are meant",
    "html_template.py": "installed files",
    "run_directory.py": "a lock on a folder",
    "targets/device_lock.py": "locks of its own",
    "targets/leftovers.py": "files of the kernel in /proc",
    "targets/local.py": "files of the kernel in /sys",
    "targets/state.py": "files of the kernel in /sys and /proc",
}


def reads(module: Path) -> Iterator[str]:
    """The calls that read a file or JSON by themselves, without a bound."""
    for node in ast.walk(tree_of(module)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            yield "open"
        if isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if (owner, function.attr) in READING_CALLS or function.attr in READING_METHODS:
                yield f"{owner}.{function.attr}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_json_are_read_with_bounds(module: Path) -> None:
    """S5, S6: everything that may be a stranger's goes through base/files and base/json_input."""
    if str(module.relative_to(PACKAGE)) not in READS_ITSELF:
        assert not list(reads(module))


def test_every_exception_from_bounded_reading_is_needed() -> None:
    assert all(list(reads(PACKAGE / name)) for name in READS_ITSELF)


def test_presets_come_in_sets_of_the_same_name() -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    named = {
        kind: {p["name"] for p in presets[kind] if not p.get("hidden")}
        for kind in ("configurePresets", "buildPresets", "testPresets", "workflowPresets")
    }
    assert {"host", "host-debug"} <= named["workflowPresets"]
    for kind, names in named.items():
        assert names == named["workflowPresets"], kind


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert etprof.__version__ == project["version"]


def test_executorch_is_pinned_once() -> None:
    pin = "1.5.1"
    holders = {
        str(path.relative_to(ROOT))
        for pattern in ("*.toml", "*.txt", "cmake/*", "python/**/*.py", "cpp/**/*", "tests/**/*.py")
        for path in ROOT.glob(pattern)
        if path.is_file() and path != Path(__file__) and f"=={pin}" in path.read_text()
    }
    assert holders == {"pyproject.toml"}


def test_help_imports_nothing_heavy() -> None:
    from etprof.process import run_command

    code = (
        "import sys, contextlib\n"
        "from etprof.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    completed = run_command([sys.executable, "-c", code])
    assert completed.stdout.startswith("usage: etprof")
    loaded = completed.stderr
    for heavy in (
        "torch",
        "executorch",
        "pandas",
        "scipy",
        "numpy",
        "pydantic",
        "rich",
        "sqlalchemy",
    ):
        assert f"'{heavy}'" not in loaded, heavy
