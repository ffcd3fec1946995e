"""Whether mypy refuses a change: `nox -s lint` runs it on everything that lands.

A change that it refuses is no change that somebody could make unnoticed, and none that a test is
needed for. It counts neither as killed nor as alive, as a compile error does in other tools.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.mutants.copies import OF_THE_BUILD, PACKAGE, changed_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutants.operators import Change


_EXCLUDED: Final = ("--exclude", f"^{PACKAGE}/({'|'.join(OF_THE_BUILD)})/")
"""What a build puts into the package is other files' copies, and mypy finds their imports nowhere."""


class TypeChecker:
    """mypy over a copy of the tree, which it has read once: a change then takes a second or two."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._can_judge: bool | None = None
        self._changes = 0

    def refuses(self, file: str, change: Change) -> bool:
        """Whether the change of a file is an error of types; False where mypy cannot judge."""
        if not self._passes_unchanged():
            return False
        path = self._folder / PACKAGE / file
        self._changes += 1
        with changed_file(path, change.apply(path.read_text()), self._changes):
            return self._run() == 1

    def _passes_unchanged(self) -> bool:
        if self._can_judge is None:
            self._can_judge = importlib.util.find_spec("mypy") is not None and self._run() == 0
            if not self._can_judge:
                print("types: not checked: mypy is not installed, or refuses the tree", flush=True)
        return self._can_judge

    def _run(self) -> int:
        command = [sys.executable, "-m", "mypy", "--no-error-summary", *_EXCLUDED, str(PACKAGE)]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, check=False)
        return done.returncode
