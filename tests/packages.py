"""Builds the source archive and a wheel for every Python here, and tries them: `nox -s packages`.

Wheels are built from the archive, repaired as cibuildwheel would, and installed into environments
without torch and executorch, with the packages that docs/installing.md lists. Exit code 1 when
anything is wrong.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import etprof

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("cmake", "configs", "cpp", "models", "python", "toolchains")
FILES: Final = (
    "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "PKG-INFO", "README.md",
    "pyproject.toml",
)  # fmt: skip
PAGE: Final = re.compile(r"docs/[a-z_A-Z]+\.md")
PRODUCT: Final = re.compile(r"\.(so|a|o|pyc|dylib|whl|gz)$|__pycache__|/etprof/(bin|source)/")
LARGEST: Final = {".gz": 1_500_000, ".whl": 3_000_000}
"""Bytes of an archive, by the end of its name."""
RUNPATH: Final = b"$ORIGIN/../../executorch/lib"
LEAST_PYTHON: Final = (3, 11)


def read_short_list() -> list[str]:
    """The requirements that docs/installing.md names for reading alone."""
    text = (ROOT / "docs/installing.md").read_text("utf-8")
    (line,) = re.findall(r"^pip install (\".*)$", text, re.MULTILINE)
    return re.findall(r'"([^"]+)"', line)


def source_problems(names: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """What is wrong with the files of a source archive; `tracked` are the repository's."""
    held = {name.partition("/")[2] for name in names}
    needed = {
        name for name in tracked if name.split("/")[0] in FOLDERS or PAGE.fullmatch(name)
    } | set(FILES)
    return [
        *(f"missing in the source archive: {name}" for name in sorted(needed - held)),
        *(f"no part of the source archive: {name}" for name in sorted(held - needed)),
    ]


def wheel_problems(names: Iterable[str], tracked: Iterable[str]) -> list[str]:
    """What is wrong with the files of a wheel; `tracked` are the repository's."""
    held = {name for name in names if ".dist-info/" not in name}
    places = {
        "python/etprof/": "etprof/",
        "models/": "etprof/models/",
        "configs/": "etprof/configs/",
    }
    needed = {
        name.replace(folder, place, 1)
        for name in tracked
        for folder, place in places.items()
        if name.startswith(folder)
    } | {"etprof/bin/etprof-runner", "etprof/bin/etprof-runner-trace"}
    needed |= {f"etprof/{name}" for name in tracked if PAGE.fullmatch(name)}
    readers = {name for name in held if re.fullmatch(r"etprof/_etdump\.[\w.-]+\.so", name)}
    sources = {name for name in held if name.startswith("etprof/source/")}
    wrong = [] if len(readers) == 1 else [f"{len(readers)} readers in the wheel, not 1"]
    if "etprof/source/CMakeLists.txt" not in sources:
        wrong.append("no sources of the runners in the wheel")
    products = {name for name in sources if PRODUCT.search(name.removeprefix("etprof/source"))}
    strange = (held - needed - readers - sources) | products
    return [
        *wrong,
        *(f"missing in the wheel: {name}" for name in sorted(needed - held)),
        *(f"no part of the wheel: {name}" for name in sorted(strange)),
    ]


def library_problems(audit: dict[str, Any]) -> list[str]:
    """What a wheel takes from elsewhere and may not, by what `auditwheel show --json` says."""
    strange = [name for name in audit["external_libs"] if not name.startswith("libexecutorch")]
    return [f"the wheel needs {name}, which no package brings" for name in strange]


def list_tracked() -> list[str]:
    """The repository's files."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z"]
    return run(*words).strip("\0").split("\0")


def run(*words: object) -> str:
    """Runs a program away from the checkout's own packages; returns what it printed."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    texts = [str(word) for word in words]
    done = subprocess.run(texts, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(texts)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def find_pythons() -> dict[tuple[int, int], Path]:
    """One Python of each version here that etprof supports: this one, then those of PATH, pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = [shutil.which(f"python3.{minor}") for minor in range(LEAST_PYTHON[1], 20)]
    candidates: list[str | Path] = [
        sys.executable,
        *filter(None, named),
        *sorted(pyenv.glob("3.*/bin/python")),
    ]
    found: dict[tuple[int, int], Path] = {}
    ask = "import sys, sysconfig, os; print(*sys.version_info[:2], sysconfig.get_path('include'))"
    for path in candidates:
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode:  # pyenv's stand-in for a version that is not chosen
            continue
        major, minor, headers = done.stdout.split(maxsplit=2)
        version = int(major), int(minor)
        if version >= LEAST_PYTHON and Path(headers.strip(), "Python.h").is_file():
            found.setdefault(version, Path(path))
    return found


def pip(python: Path, *words: object) -> str:
    """This environment's pip, working for another Python."""
    return run(sys.executable, "-m", "pip", "--python", python, *words)


def build_source(out: Path) -> Path:
    """Builds the source archive."""
    run(sys.executable, "-m", "build", "-q", "--sdist", "--outdir", out, ROOT)
    (archive,) = out.glob("*.tar.gz")
    return archive


def build_wheel(python: Path, source: Path, out: Path) -> Path:
    """Builds a wheel from the source archive, with the ExecuTorch of this environment."""
    sdk = str(distribution("executorch").locate_file("executorch"))
    defined = {"ETPROF_EXECUTORCH_SDK": sdk}
    if shutil.which("ccache"):
        defined["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        defined["CMAKE_C_COMPILER_LAUNCHER"] = "ccache"
    settings = [f"-Ccmake.define.{name}={value}" for name, value in defined.items()]
    pip(python, "wheel", "-q", "--no-deps", "--wheel-dir", out, *settings, source)
    (wheel,) = out.glob("*.whl")
    return wheel


def repair(wheel: Path, out: Path) -> Path:
    """Does with a wheel what cibuildwheel's configuration says."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    command = settings["linux"]["repair-wheel-command"]
    run("sh", "-c", command.format(dest_dir=shlex.quote(str(out)), wheel=shlex.quote(str(wheel))))
    (repaired,) = out.glob("*.whl")
    return repaired


def check_archive(archive: Path, problems: Sequence[str], names: Sequence[str]) -> list[str]:
    """Adds to the problems with an archive's files those of its name, size and description."""
    told = run(sys.executable, "-m", "twine", "check", "--strict", archive)
    size, largest = archive.stat().st_size, LARGEST[archive.suffix]
    wrong = list(problems)
    if size > largest:
        wrong.append(f"{archive.name} has {size} bytes, more than {largest}")
    if f"etprof-{etprof.__version__}" not in archive.name:
        wrong.append(f"{archive.name} is not version {etprof.__version__}")
    print(f"{archive.name}: {len(names)} files, {size} bytes; {told.split()[-1]}", flush=True)
    return wrong


def check_source(archive: Path, tracked: Sequence[str]) -> list[str]:
    """Returns what is wrong with a source archive."""
    with tarfile.open(archive) as opened:
        names = [member.name for member in opened.getmembers() if not member.isdir()]
    return check_archive(archive, source_problems(names, tracked), names)


def check_wheel(wheel: Path, tracked: Sequence[str]) -> list[str]:
    """Returns what is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if not name.endswith("/")]
        runner = opened.read("etprof/bin/etprof-runner")
    problems = wheel_problems(names, tracked)
    if RUNPATH not in runner:
        problems.append("the runner does not look for ExecuTorch's libraries beside etprof")
    audit = json.loads(run(sys.executable, "-m", "auditwheel", "show", "--json", wheel))
    return check_archive(wheel, [*problems, *library_problems(audit)], names)


def make_bare(python: Path, folder: Path) -> Path:
    """Makes an environment of the packages that reading needs; returns its Python."""
    run(python, "-m", "venv", "--without-pip", folder)
    inside = folder / "bin" / "python"
    pip(inside, "install", "-q", "--no-compile", *read_short_list())
    return inside


def main() -> int:
    """Builds, checks and tries all of it."""
    begun = time.monotonic()
    tracked = list_tracked()
    pythons = find_pythons()
    with tempfile.TemporaryDirectory() as kept, ThreadPoolExecutor() as pool:
        out = Path(kept)
        # What was compiled for one Python is taken for the next, though pip unpacks it elsewhere.
        os.environ |= {"TMPDIR": kept, "CCACHE_BASEDIR": kept, "CCACHE_NOHASHDIR": "1"}
        bare = {
            version: pool.submit(make_bare, python, out / f"bare{version[1]}")
            for version, python in pythons.items()
        }
        source = build_source(out)
        wrong = check_source(source, tracked)
        for version, python in pythons.items():
            built = build_wheel(python, source, out / f"built{version[1]}")
            wrong += check_wheel(built, tracked)
            repaired = repair(built, out / f"repaired{version[1]}")
            print(f"{repaired.name}: installed bare", flush=True)
            inside = bare[version].result()
            pip(inside, "install", "-q", "--no-deps", "--no-compile", repaired)
            print(run(inside, ROOT / "tests" / "smoke.py", "--bare"), end="", flush=True)
    for problem in wrong:
        print(problem, file=sys.stderr)
    verdict = "failed" if wrong else "passed"
    print(f"{len(pythons)} Pythons, {time.monotonic() - begun:.0f} s: {verdict}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
