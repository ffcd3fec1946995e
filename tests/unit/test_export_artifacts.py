"""The files of an export appear all together: where the manifest is, the others are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from etprof.base import atomic


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
