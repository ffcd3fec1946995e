"""A copy of the tree that may be changed, and what of the installed package belongs to it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = Path("python/etprof")
OF_THE_BUILD: Final = ("bin", "source", "models", "configs")
_EDITABLE: Final = "_editable_skbc_etprof"
"""Module of scikit-build-core that finds an editable etprof before any path does."""
_START: Final = f"""import sys
sys.meta_path[:] = [one for one in sys.meta_path if type(one).__module__ != "{_EDITABLE}"]
"""
"""What Python runs after it has read the installed packages: the copy is what is imported."""
_STARTS: Final = "start"


def copy_tree(folder: Path) -> Path:
    """Copies the tree, with the native half of the installed package; returns its package."""
    package = folder / PACKAGE
    skip = shutil.ignore_patterns("__pycache__", "*.so", *OF_THE_BUILD)
    plain = shutil.ignore_patterns("__pycache__")
    folder.mkdir(parents=True, exist_ok=True)
    # All that is tracked: a test whose file is missing would judge nothing.
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for name in {line.partition("/")[0] for line in tracked.stdout.decode().splitlines()}:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=skip if name == "python" else plain)
        else:
            shutil.copy(ROOT / name, folder)
    # Found and not imported: a process that has the package cannot test another copy of it.
    spec = importlib.util.find_spec("etprof")
    installed = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    for location in installed:
        for path in (*location.glob("*.so"), *(location / name for name in OF_THE_BUILD)):
            link = package / path.name
            if path.exists() and not link.exists():
                link.symlink_to(path.resolve())
    (folder / _STARTS).mkdir()
    (folder / _STARTS / "sitecustomize.py").write_text(_START)
    return package


@contextmanager
def changed_file(path: Path, text: str, second: int) -> Iterator[None]:
    """Has a file another text, and gives it its own back.

    What Python compiles of it, and mypy reads, is known by whole seconds: `second` is of this text
    alone.
    """
    sound, stat = path.read_bytes(), path.stat()
    path.write_text(text)
    os.utime(path, (second, second))
    try:
        yield
    finally:
        path.write_bytes(sound)
        # What was compiled of it holds again.
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def environment_of(folder: Path) -> dict[str, str]:
    """Returns the environment of processes that shall import the copy."""
    return {**os.environ, "PYTHONPATH": f"{folder / _STARTS}{os.pathsep}{folder / 'python'}"}


def import_from(folder: Path) -> None:
    """Makes this process, which has no etprof yet, import the copy's, and its tests."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    exec(_START, {})  # noqa: S102 - what every process that tests start runs too
    sys.path[:0] = [str(folder), str(folder / "python")]
