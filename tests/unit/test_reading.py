"""Reading a run needs neither torch nor ExecuTorch, and what needs them says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from etprof.base.errors import BuildError
from etprof.base.process import run_command
from etprof.cli import main
from etprof.cli.crash_report import EXIT_CODE
from etprof.targets import runner
from tests.smoke import HEAVY, reading_commands, write_run

ROOT = Path(__file__).parents[2]

READ_ALL = """
import contextlib, io, json, sys
from etprof.cli import main
told = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code or 0
    heavy = sorted(name for name in json.loads(sys.argv[2]) if name in sys.modules)
    told.append([" ".join(words), code, heavy])
print(json.dumps(told))
"""


@pytest.mark.slow
def test_reading_commands_import_neither_torch_nor_executorch(tmp_path: Path) -> None:
    commands = [*reading_commands(write_run(tmp_path), tmp_path), ["doctor"]]
    given = (json.dumps(commands), json.dumps([*HEAVY, "torchao", "transformers"]))
    done = run_command([sys.executable, "-c", READ_ALL, *given])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told) == len(commands)
    assert not [each for each in told if each[1] != 0 or each[2]]


def fail_to_import(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fail(_: object) -> int:
        raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr("etprof.cli.models.run", fail)


def test_a_package_that_is_not_installed_is_a_missing_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch, `etprof models` called it a defect of etprof."""
    fail_to_import(monkeypatch, "no_such_torch.nn")
    assert main(["models"]) == BuildError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert "no_such_torch," in line
    assert "`etprof doctor`" in line


@pytest.mark.parametrize("name", ["etprof.no_such_module", "json.no_such_module"])
def test_a_module_that_an_installed_package_has_not_is_a_defect(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fail_to_import(monkeypatch, name)
    assert main(["models"]) == EXIT_CODE


def test_a_runner_without_executorch_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`etprof doctor` showed "EOF while parsing a value" where ExecuTorch was not installed."""
    reader = tmp_path / "packages" / "etprof" / "_etdump.so"
    program = reader.parent / "bin" / "etprof-runner"
    program.parent.mkdir(parents=True)
    program.touch()

    class Spec:
        origin = str(reader)

    monkeypatch.setattr(runner, "find_spec", {"etprof._etdump": Spec}.get)
    with pytest.raises(BuildError, match="ExecuTorch's libraries"):
        runner.find_host_runner()
    (tmp_path / "packages" / "executorch").mkdir()
    assert runner.find_host_runner() == program
