"""S5: an error that nobody foresaw ends in exit code 70, one line and a private report."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from etprof.cli import main
from etprof.cli.crash_report import DEBUG_VARIABLE, EXIT_CODE

PASSWORD = "hunter2"  # noqa: S105 - what must not be found again


class UnshowableError(Exception):
    """Fails even when it is printed."""

    def __str__(self) -> str:
        return str(1 // 0)


def nest(depth: int) -> int:
    return nest(depth + 1) + 1


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that reports go to."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    return tmp_path


def break_command(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Lets `etprof models` end in `error`, or in endless recursion."""

    def fail(_: object) -> int:
        if error is None:
            return nest(0)
        raise error

    monkeypatch.setattr("etprof.cli.models.run", fail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("sme"), "a defect of etprof itself: KeyError: 'sme'"),
        (ValueError("two\nlines \x1b[31m"), r"a defect of etprof itself: ValueError: two lines"),
        (OSError("corrupt data"), "a defect of etprof itself: OSError: corrupt data"),
        (AssertionError(), "a defect of etprof itself: AssertionError;"),
        (UnshowableError(), "a defect of etprof itself: UnshowableError;"),
        (ValueError("x" * 10_000_000), "a defect of etprof itself: ValueError: xxx"),
        (MemoryError(), "there is not enough memory for this; close other programs"),
        (None, "a defect of etprof itself: RecursionError: maximum recursion depth"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_one_line_a_code_and_a_report(
    error: Exception | None,
    reason: str,
    reports: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    break_command(monkeypatch, error)
    assert main(["models"]) == EXIT_CODE == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"etprof: {reason}")
    assert err.count("\n") == 1
    assert len(err) < 1000
    assert err.rstrip("\n").isprintable()
    (report,) = reports.iterdir()
    assert str(report) in err
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert report.stat().st_size < 1_000_000
    assert "command: etprof models" in report.read_text()


def test_the_report_says_what_a_maintainer_asks_for(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_command(monkeypatch, KeyError("sme"))
    main(["models"])
    text = next(reports.iterdir()).read_text()
    for needed in ("etprof 0.", "Python 3.", "numpy ", "Traceback", "KeyError: 'sme'", "fail"):
        assert needed in text


@pytest.mark.parametrize(
    "words",
    [
        ["--store", f"postgresql://me:{PASSWORD}@host/db"],
        [f"--store=postgresql://me:{PASSWORD}@host/db"],
        ["--store", PASSWORD],
        ["--prompt", PASSWORD],
        [f"a text with {PASSWORD}"],
    ],
)
def test_what_may_be_secret_is_left_out(
    words: list[str], reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        msg = f"of {words} and https://me:{PASSWORD}@host"
        raise RuntimeError(msg)

    monkeypatch.setattr("etprof.cli.run_command_line", fail)
    assert main(["history", "list", *words, "--model", "toy_cnn"]) == 70
    text = next(reports.iterdir()).read_text()
    assert PASSWORD not in text
    assert re.search(r"command: etprof history list .*--model toy_cnn", text)


def test_a_report_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    break_command(monkeypatch, KeyError("sme"))
    assert main(["models"]) == 70
    err = capsys.readouterr().err
    assert "no report could be written" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--debug", "models"], ["models", "--debug"]])
@pytest.mark.usefixtures("reports")
def test_debug_shows_the_traceback_wherever_it_stands(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_command(monkeypatch, KeyError("sme"))
    assert main(words) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--debug history show 1", "history --debug show 1"])
def test_debug_is_known_to_every_level(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 4
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("etprof: etprof_history.sqlite does not exist")


@pytest.mark.usefixtures("reports")
def test_the_environment_asks_for_it_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    break_command(monkeypatch, KeyError("sme"))
    assert main(["models"]) == 70
    assert "Traceback" in capsys.readouterr().err
