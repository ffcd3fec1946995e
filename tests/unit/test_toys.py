"""How many files it takes to add a column, a format, a finding, a target and a backend."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import etprof
from etprof.base.process import run_command
from tests.toys import TOYS, add

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_toy_of_each_takes_few_files(tmp_path: Path) -> None:
    """And works everywhere at once: in all formats, on the command line, in the reports."""
    package = tmp_path / "python/etprof"
    installed = Path(etprof.__file__).parent
    own = shutil.ignore_patterns("__pycache__", "bin")
    shutil.copytree(installed, package, ignore=own, symlinks=False)
    counts = {name: add(package, toy) for name, toy in TOYS.items()}
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([str(tmp_path / "python"), str(ROOT)])
    done = run_command(
        [sys.executable, "-m", "tests.toys", "check", tmp_path / "work"],
        folder=ROOT,
        environment={"PYTHONPATH": path},
    )
    assert done.exit_code == 0, done.stderr
    assert all(counts[name] <= toy.most_files for name, toy in TOYS.items()), counts
