"""Changes a run's manifest as its writer would: the checksum of the whole is made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etprof.run.manifest import MANIFEST, seal


def edit_manifest(run: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Lets `edit` change the manifest's JSON data."""
    document = json.loads((run / MANIFEST).read_text())
    document.pop("checksum", None)
    edit(document)
    (run / MANIFEST).write_bytes(seal(document))
