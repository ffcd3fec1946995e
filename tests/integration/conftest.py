"""Fixtures of the tests that need real programs: each export is made once per session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.export.exporter import export_model

if TYPE_CHECKING:
    from etprof.export.request import ExportedFiles, ExportRequest


class Exports:
    """Exports on demand and remembers; a request with its own folder is not shared."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[ExportRequest, ExportedFiles] = {}

    def get(self, request: ExportRequest) -> ExportedFiles:
        if request not in self._made:
            folder = self._factory.mktemp("export")
            self._made[request] = export_model(replace(request, outdir=folder))
        return self._made[request]


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    return Exports(tmp_path_factory)
