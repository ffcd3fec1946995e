"""What a newcomer mistypes is answered with what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import UsageError
from etprof.base.text import suggest
from etprof.cli import main
from etprof.export.request import parse_precision
from etprof.history.store import DEFAULT_STORE, VARIABLE, is_new_in_git
from tests.known_runs import on_off_run, write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("said", "meant"), [("phone", "android"), ("adb", "android"), ("qemu", "emulator")]
)
def test_a_target_by_another_name(
    said: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "toy_cnn", "--target", said]) == 2
    assert f"did you mean {meant!r}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "meant"),
    [("float16", "fp16"), ("half", "fp16"), ("float32", "fp32"), ("bfloat16", "bf16")],
)
def test_a_precision_by_pytorchs_name(said: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        parse_precision(said)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("macos", "mac"), ("Darwin", "mac"), ("qemu", "emulator"), ("x86", "local"),
        ("pixel", "android"), ("float", "fp32"), ("bfloat16", "bf16"),
    ],
)  # fmt: skip
def test_what_people_call_it_is_understood(said: str, meant: str) -> None:
    assert suggest(said, ["android", "emulator", "local", "mac", "fp32", "bf16"]) == (
        f"; did you mean {meant!r}?"
    )


def test_another_name_is_no_answer_where_it_is_no_choice() -> None:
    assert suggest("phone", ["fp16"]) == ""


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "FILE"], ["report", "FILE"], ["validate", "FILE"], ["compare", "FILE", "run"],
        ["history", "add", "FILE"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["report.html", "metrics.json"])
def test_a_report_in_place_of_its_run_names_the_run(
    words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", on_off_run())
    (tmp_path / "run" / "report.html").write_text("<p>", encoding="utf-8")
    assert main([word.replace("FILE", f"run/{name}") for word in words]) == 4
    said = f"run/{name} is a file of a run; give the run directory: run\n"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against", "no.pte"], "no.pte does not exist"),
        (["--against", "no_such_model"], "no model is called 'no_such_model'"),
        (["--against", "no.py:Net"], "model file no.py does not exist"),
        (["--inputs", "no.bin"], "no.bin does not exist"),
        (["--etrecord", "no.etrecord"], "no.etrecord does not exist"),
    ],
)
def test_nothing_is_exported_for_a_command_that_names_what_is_not_there(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def export(*_: object, **__: object) -> None:
        pytest.fail("exported first")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("etprof.cli.export.export_named", export)
    assert main(["profile", "toy_cnn", *words]) in {2, 4}
    assert message in capsys.readouterr().err


def test_a_history_that_git_will_show_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bench` left etprof_history.sqlite in the user's git tree without a word."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert not is_new_in_git()
    (tmp_path / ".git").mkdir()
    assert is_new_in_git()
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert is_new_in_git()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other.sqlite"))
    assert not is_new_in_git()
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "inner" / DEFAULT_STORE).touch()
    assert not is_new_in_git()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile", "Net"], "no model is called 'Net'; did you mean 'net.py:Net'? known: "),
        (["profile", "make_net"], "did you mean 'net.py:make_net'?"),
        (["export", "net.pte"], "net.pte is exported already; name the model that it was made of"),
        (["optimize", "net.pte"], "net.pte is exported already; name the model that it was made of"),
        (["profile", "net.pt2:Net"], "net.pt2 is one model, without classes: leave out :Net"),
        (["profile", "net.py:Net", "--inputs", "1x3x8x8"],
         "1x3x8x8 does not exist; --inputs and --data take files; give shapes to --input"),
        (["profile", "toy_cnn", "--weights", "a.pt"],
         "; `etprof export` takes --weights, and `etprof profile` the program that it writes; see "),
        (["profile", "toy_cnn", "--wieghts", "a.pt"], "cannot use --wieghts a.pt; see `etprof profile"),
        (["optimize", "toy_cnn", "--threads", "2"],
         "--threads is for measuring: add --target, such as --target local, or leave it out"),
    ],
)  # fmt: skip
def test_what_was_meant_is_in_the_answer(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A third newcomer typed these."""
    (tmp_path / "net.py").write_text("class Net: ...\n\n\ndef make_net(): ...\n")
    for name in ("net.pte", "net.pt2"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert main(words) in {2, 4}
    assert message in capsys.readouterr().err
