"""Exports one model: from its name to a program and the files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof import registry
from etprof.export.stages import StageClock

if TYPE_CHECKING:
    from etprof.export.request import ExportedFiles, ExportRequest
    from etprof.export.stages import StageListener


def export_model(request: ExportRequest, listener: StageListener | None = None) -> ExportedFiles:
    """Exports the requested model and returns the paths of its files.

    The request and the model's name are checked before PyTorch is imported. Raises UsageError for
    a request that cannot be met, ExportError when the model cannot be turned into a program, and
    OutputError when the files cannot be written; then no file of this export is left.
    """
    clock = StageClock(listener, is_tracing=request.options.trace)
    files = request.files()
    registry.find_model(request.model)
    with clock.stage("import ExecuTorch"):
        from etprof.export import session
    session.ExportSession(request, files, clock).run()
    return files
