"""Shells complete commands, flags and what flags take."""

from __future__ import annotations

import shutil

import pytest

from etprof.base.process import run_command
from etprof.cli import COMMANDS, main
from etprof.targets.registry import KINDS


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["etprof", ""], set(COMMANDS)),
        (["etprof", "profile", "--target", ""], set(KINDS)),
        (["etprof", "history", "ch"], {"check", "changes"}),
        (["etprof", "profile", "--trace-r"], {"--trace-runner"}),
    ],
)
def test_bash_completes(
    words: list[str], offered: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_etprof; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = run_command([bash, "-c", f"{script}\n{asked}", "bash", *words])
    assert done.exit_code == 0, done.stderr
    assert offered <= set(done.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "optimize" in capsys.readouterr().out
