"""The rules of CONTRIBUTING that a machine can check: layers, sizes, presets, versions."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib.metadata
import json
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import etprof
from tests import house_debts
from tests.mutants.__main__ import find
from tests.mutants.known import MUTATIONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "etprof"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the lowest to the highest: a part imports from lower floors and from itself, nothing else.
# Parts are folders, or modules of the root.
FLOORS = (
    "_etdump", "_version", "base", "statistics", "etdump", "run", "backends", "targets",
    "model_registry", "analysis", "export", "etrecord", "export_llm", "config", "importing",
    "tables", "views", "report_files", "measuring", "numerics", "optimize", "history", "bench",
    "dashboard", "api", "model_explorer", "doctor", "cli",
)  # fmt: skip
HEAVY = {"torch", "executorch", "torchao", "transformers"}
MAY_IMPORT_TORCH = {
    "export", "export_llm", "etrecord", "model_registry", "numerics",
    # A backend's part of the export; `Backend.exporter` imports it when a model is exported.
    "backends/xnnpack/exporting.py", "backends/xnnpack/graph.py", "backends/xnnpack/lowering_rewrites.py", "backends/xnnpack/graph_rewrites.py",
    "backends/xnnpack/graph_edits.py", "backends/xnnpack/program_rewrites.py",
    "backends/xnnpack/aten_forms.py", "backends/xnnpack/layer_rewrites.py",
    "backends/xnnpack/recurrent_rewrites.py", "backends/xnnpack/needless_work.py",
    "backends/xnnpack/position_rewrites.py",
    "backends/xnnpack/weight_rewrites.py",
    "backends/rewrite.py",
}  # fmt: skip
ENTRANCES = {"__main__", "__init__"}
"""Modules of the root that start what is above: the command line and, at its first use, the API."""


@functools.cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_names(module: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(module: Path) -> set[str]:
    names = [name.split(".") for name in imported_names(module)]
    return {name[1] for name in names if name[0] == "etprof" and len(name) > 1}


def arrows_between_parts() -> dict[str, set[str]]:
    """What each part imports of the others, from the imports themselves."""
    arrows: dict[str, set[str]] = {}
    for module in MODULES:
        part = part_of(module)
        arrows.setdefault(part, set()).update(imported_parts(module) - {part})
    return arrows


def test_imports_go_to_lower_floors() -> None:
    parts = {part_of(module) for module in MODULES} - ENTRANCES
    assert parts == set(FLOORS) - {"_etdump"}, "give each part its floor in this test"
    height = {part: floor for floor, part in enumerate(FLOORS)}
    upward = {
        str(module.relative_to(PACKAGE)): sorted(parts)
        for module in MODULES
        if part_of(module) not in ENTRANCES
        and (
            parts := {
                part
                for part in imported_parts(module) - {part_of(module)}
                if height[part] > height[part_of(module)]
            }
        )
    }
    assert not upward, "these import from a higher floor"


def test_no_folders_import_each_other_in_a_circle() -> None:
    """H1: 18 of 27 folders hung in one circle, which the rule's own table allowed."""
    arrows = arrows_between_parts()
    assert arrows["__init__"] == {"_version", "api"}
    del arrows["__init__"]
    assert sum(map(len, arrows.values())) > len(FLOORS)
    graphlib.TopologicalSorter(arrows).prepare()  # raises CycleError with the circle


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


def test_only_export_imports_torch_or_executorch() -> None:
    importers = {
        name_of(module) if part_of(module) == "backends" else part_of(module)
        for module in MODULES
        if {name.split(".")[0] for name in imported_names(module)} & HEAVY
    }
    assert importers == MAY_IMPORT_TORCH


def test_only_one_module_imports_the_native_reader() -> None:
    importers = {part_of(module) for module in MODULES if "_etdump" in imported_parts(module)}
    assert importers == {"etdump"}


def test_only_one_module_starts_processes() -> None:
    starters = {
        str(module.relative_to(PACKAGE))
        for module in MODULES
        if {name.split(".")[0] for name in imported_names(module)} & {"subprocess", "pty"}
    }
    assert starters == {"base/process.py"}


def test_only_one_file_includes_pybind11() -> None:
    sources = [*ROOT.glob("cpp/**/*.cpp"), *ROOT.glob("cpp/**/*.h")]
    users = {path.name for path in sources if "#include <pybind11" in path.read_text()}
    assert users == {"module.cpp"}


def test_folders_of_the_native_half_include_one_way() -> None:
    """Review 17, 24: none includes one that includes it again, by whatever way."""
    sources = [*ROOT.glob("cpp/**/*.cpp"), *ROOT.glob("cpp/**/*.h")]
    arrows = {
        (path.parent.name, found)
        for path in sources
        for found in re.findall(r'#include "(\w+)/', path.read_text())
        if found != path.parent.name
    }
    assert arrows
    while arrows:  # take away what nothing below depends on, until nothing is left
        lowest = {to for _, to in arrows} - {origin for origin, _ in arrows}
        assert lowest, arrows
        arrows = {arrow for arrow in arrows if arrow[1] not in lowest}


def test_the_native_half_grows_no_further() -> None:
    """C8: 7 600 lines in all of cpp/ before the native half was written anew.

    Code is counted: a bound on all lines had comments taken out to make room.
    """
    sources = [*ROOT.glob("cpp/**/*.cpp"), *ROOT.glob("cpp/**/*.h")]
    lines = (line.strip() for path in sources for line in path.read_text().splitlines())
    assert sum(bool(line) and not line.startswith("//") for line in lines) <= 4640
    assert len((ROOT / "CMakePresets.json").read_text().splitlines()) <= 250


def functions(module: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, its docstring apart."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_tables_and_views_touch_no_file() -> None:
    """T10: what is shown comes from one reading, made before."""
    pure = [module for module in MODULES if part_of(module) in {"tables", "views"}]
    found = {
        str(module.relative_to(PACKAGE))
        for module in pure
        if list(reads(module)) or {n.split(".")[0] for n in imported_names(module)} & {"pathlib"}
    }
    assert pure
    assert not found


def test_functions_are_small() -> None:
    sizes = {f"{m.name}:{f.name}": code_lines(f) for m in MODULES for f in functions(m)}
    too_long = {name: size for name, size in sizes.items() if size > 50}
    assert not too_long
    assert statistics.median(sizes.values()) < 10


@pytest.mark.parametrize("folder", ["python", "cpp", "tests", "models", "benchmarks", "docs"])
def test_files_are_short(folder: str) -> None:
    files = [p for s in ("py", "cpp", "h", "S") for p in (ROOT / folder).rglob(f"*.{s}")]
    too_long = [str(p) for p in files if len(p.read_text().splitlines()) > 600]
    assert not too_long


def name_of(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


def line_count(module: Path) -> int:
    return len(module.read_text().splitlines())


def test_folders_are_narrow() -> None:
    """The commands' folder has a module a command."""
    widths = Counter(
        module.parent.relative_to(PACKAGE).as_posix()
        for module in MODULES
        if module.name != "__init__.py"
    )
    wide = {folder: width for folder, width in widths.items() if width > 15 and folder != "cli"}
    too_wide = {f: w for f, w in wide.items() if w > house_debts.WIDE_FOLDERS.get(f, 15)}
    assert not too_wide, "fold what answers one question, or give it a folder"


def importers() -> dict[Path, set[Path]]:
    """The modules that import each module."""
    names = {
        ".".join(("etprof", *m.relative_to(PACKAGE).with_suffix("").parts)): m for m in MODULES
    }
    found: dict[Path, set[Path]] = {module: set() for module in MODULES}
    for module in MODULES:
        for imported in imported_names(module):
            for name in (imported, imported.rpartition(".")[0]):
                if name in names and names[name] != module:
                    found[names[name]].add(module)
    return found


def test_no_small_module_has_one_importer_in_its_folder() -> None:
    alone = {
        name_of(module)
        for module, users in importers().items()
        if {user.parent for user in users} == {module.parent}
        and len(users) == 1
        and line_count(module) <= 150
        and not module.name.startswith("__")
    }
    new = alone - set(house_debts.IMPORTED_ONCE) - house_debts.IMPORTED_ONCE_YET
    assert not new, "fold these into what imports them"


def test_reading_holds_no_paths() -> None:
    """A path in analysis, tables or views is a second place that reads files."""
    holders = {
        name_of(module)
        for module in MODULES
        if part_of(module) in {"analysis", "tables", "views"}
        and any(name.split(".")[0] == "pathlib" for name in imported_names(module))
    }
    assert not holders - house_debts.HOLD_PATHS


def texts_of_code(module: Path) -> Iterator[str]:
    """Names and strings of a module: its code, with docstrings and comments taken off."""
    nodes = list(ast.walk(tree_of(module)))
    bodies = [body for node in nodes if isinstance(body := getattr(node, "body", None), list)]
    docs = {s.value for body in bodies for s in body if isinstance(s, ast.Expr)}
    for node in nodes:
        if node not in docs:
            for _, value in ast.iter_fields(node):
                words = value if isinstance(value, list) else [value]
                yield from (word for word in words if isinstance(word, str))


def test_one_folder_knows_xnnpack() -> None:
    """T16: a backend cost about 25 files. Names and strings count, comments and docstrings do not."""
    named = {
        name_of(module): found
        for module in MODULES
        if part_of(module) != "backends"
        if (found := [text for text in texts_of_code(module) if "xnnpack" in text.lower()])
    }
    assert not named
    templates = [*PACKAGE.rglob("*.j2"), *PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.js")]
    assert not [file.name for file in templates if "xnnpack" in file.read_text().lower()]
    assert any("xnnpack" in text for text in texts_of_code(PACKAGE / "backends/registry.py"))


NUMBER = re.compile(r"\.\d*[feg%]|,")


def test_one_module_formats_numbers() -> None:
    own = Counter(
        name_of(module)
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr)
        for part in node.format_spec.values
        if isinstance(part, ast.Constant) and NUMBER.search(str(part.value))
    )
    del own["base/units.py"]
    assert own.total() <= house_debts.OWN_FORMATS, own


def record_fields() -> Iterator[tuple[str, str]]:
    """Class and name of each field of a record, dataclass or named tuple."""
    classes = {
        node.name: node
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef)
    }

    def is_record(name: str) -> bool:
        node = classes.get(name)
        bases = [b.id for b in node.bases if isinstance(b, ast.Name)] if node else []
        marks = [ast.unparse(mark) for mark in node.decorator_list] if node else []
        return (
            name in {"Record", "NamedTuple"}
            or any(mark.split("(")[0].endswith("dataclass") for mark in marks)
            or any(is_record(base) for base in bases if base != name)
        )

    for name, node in classes.items():
        if is_record(name):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield name, part.target.id


def unread_fields() -> set[str]:
    """Those of them that the package reads nowhere, by class and name."""
    read = {"schema_version", "model_config"}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)  # read by its name
    for template in [*PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.j2")]:
        read |= set(re.findall(r"\.(\w+)", template.read_text()))
    return {f"{owner}.{field}" for owner, field in record_fields() if field not in read}


def test_every_field_of_every_record_is_read() -> None:
    """T11, A-D26: a fact that nobody reads is dead weight, or is forgotten somewhere."""
    assert len(set(record_fields())) > 500
    assert not unread_fields() - set(house_debts.UNREAD_FIELDS)


READING_CALLS = {
    ("json", "load"), ("json", "loads"), ("np", "load"), ("np", "fromfile"), ("torch", "load"),
}  # fmt: skip
READING_METHODS = {"read_text", "read_bytes", "model_validate_json", "open"}
READS_ITSELF = {
    "base/atomic.py": "writes",
    "base/files.py": "the reading module",
    "base/json_input.py": "the reading module",
    "bench/archives.py": "archives in memory, by members and bytes",
    "cli/__init__.py": "the null device",
    "cli/docs.py": "installed files",
    "cli/surroundings.py": "the null device",
    "config.py": "installed files",
    "dashboard/views/report.py": "follows no link; checks kind and size itself",
    "targets/emulator/apt.py": "/etc/os-release",
    "targets/debugger/watcher.py": "a program inside a debugger, which reads what etprof has just written",
    "targets/emulator/instructions.py": "an installed library; a pipe of its own",
    "targets/emulator/cache.py": "a lock of its own",
    "etrecord/archive.py": "parts of an archive that is open already, each with its bound",
    "export/bundle_runtime.py": "a process of its own, for the file that was written just before",
    "model_registry/input_spec.py": "PyTorch's reader, of bytes that were read with a bound",
    "export/model_loading.py": "PyTorch's reader, of a file that is open already",
    "backends/library.py": "parts of an archive in memory, with a bound for all of them",
    "backends/xnnpack/sme.py": "an installed file",
    "export/session.py": "writes",
    "backends/xnnpack/graph.py": "flatc's answer: its schema bounds depth; infinities are meant",
    "base/html_template.py": "installed files",
    "run/directory.py": "a lock on a folder",
    "targets/device_lock.py": "locks of its own",
    "targets/leftovers.py": "files of the kernel in /proc",
    "targets/local.py": "files of the kernel in /sys",
    "targets/runner.py": "a file of the kernel in /proc",
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


def test_files_and_json_are_read_with_bounds() -> None:
    """S5, S6: everything that may be a stranger's goes through base/files and base/json_input."""
    found = {str(module.relative_to(PACKAGE)) for module in MODULES if list(reads(module))}
    assert found == set(READS_ITSELF)


def test_presets_come_in_sets_of_the_same_name() -> None:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    named = {
        kind: {p["name"] for p in presets[kind] if not p.get("hidden")}
        for kind in ("configurePresets", "buildPresets", "testPresets", "workflowPresets")
    }
    assert {"host", "host-debug"} <= named["workflowPresets"]
    for kind, names in named.items():
        assert names == named["workflowPresets"], kind


def test_the_version_stands_in_one_place() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert document["project"]["dynamic"] == ["version"]
    place = document["tool"]["scikit-build"]["metadata"]["version"]["input"]
    assert f"file(STRINGS {place} " in (ROOT / "CMakeLists.txt").read_text()
    assert re.findall('^__version__ = "(.*)"$', (ROOT / place).read_text(), re.MULTILINE) == [
        etprof.__version__
    ]


def test_executorch_is_pinned_once() -> None:
    pin = "1.5.1"
    holders = {
        str(path.relative_to(ROOT))
        for pattern in ("*.toml", "*.txt", "cmake/*", "python/**/*.py", "cpp/**/*", "tests/**/*.py")
        for path in ROOT.glob(pattern)
        if path.is_file() and path != Path(__file__) and f"=={pin}" in path.read_text()
    }
    assert holders == {"pyproject.toml"}


def names_of(requirements: list[str | dict[str, str]]) -> set[str]:
    """Normalised names of a dependency group, without the groups that it includes."""
    texts = [each for each in requirements if isinstance(each, str)]
    return {re.split(r"[\[<>=]", text)[0].strip().lower().replace("_", "-") for text in texts}


@pytest.mark.slow
def test_types_are_checked_without_the_packages_of_tests() -> None:
    """`nox` checks types before it installs what tests use: mypy asks none of these for types."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups, mypy = project["dependency-groups"], project["tool"]["mypy"]
    at_hand = names_of(groups["lint"]) | names_of(project["project"]["dependencies"])
    later = {
        name for each in ("test", "browser", "fuzz", "docs") for name in names_of(groups[each])
    }
    skipped = {name.removesuffix(".*") for each in mypy["overrides"] for name in each["module"]}
    checked = [path for folder in mypy["files"] for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for path in checked for node in ast.walk(tree_of(path))]
    imported = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    homes = importlib.metadata.packages_distributions()
    tops = {name.split(".")[0] for name in imported}
    assert "pytest" in tops
    missing = {
        top for top in tops if {each.lower() for each in homes.get(top, [])} & (later - at_hand)
    }
    assert missing - skipped == set()


def test_help_imports_nothing_heavy() -> None:
    from etprof.base.process import run_command

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


def test_every_mutation_is_of_a_text_that_is_there() -> None:
    """A mutation whose text was rewritten is lost, and with it what its tests are held to."""
    lost = [each.number for each in MUTATIONS if find(PACKAGE, each) is None]
    assert not lost
