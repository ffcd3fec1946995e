"""The files of an export appear all together: where the manifest is, the others are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from etprof.base import atomic
from etprof.export.request import ExportedFiles


class KilledError(BaseException):
    pass


def test_an_export_cut_off_over_an_earlier_one_leaves_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I11: the earlier export's manifest described the new program."""
    for name in ("m.pte", "m.pte.json"):
        (tmp_path / name).write_text("earlier")
    real = atomic._replace

    def replace_and_die(source: Path, target: Path) -> None:
        real(source, target)
        raise KilledError

    monkeypatch.setattr(atomic, "_replace", replace_and_die)

    def export() -> None:
        with atomic.staged_folder(tmp_path, last="m.pte.json") as folder:
            for name in ("m.pte", "m.pte.json"):
                (folder / name).write_text("new")

    with pytest.raises(KilledError):
        export()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"m.pte": "new"}


def test_what_an_export_does_not_write_is_not_left_of_an_earlier_one(tmp_path: Path) -> None:
    """Weights beside a program are given to its runner, and those were another program's."""
    files = ExportedFiles(tmp_path / "m.pte")
    for path in files.every():
        path.write_text("earlier")
    files.data.unlink()
    files.data.mkdir()
    (tmp_path / "notes.txt").write_text("not of the export")
    with atomic.staged_folder(tmp_path, last=files.manifest.name, family=files.every()) as folder:
        for path in (files.pte, files.manifest):
            (folder / path.name).write_text("new")
    assert files.written() == [files.pte, files.manifest]
    assert (tmp_path / "notes.txt").exists()
