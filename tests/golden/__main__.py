"""`python -m tests.golden`: writes the approved files again; read their diff before it is kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from etprof.targets.device_lock import FOLDER_VARIABLE
from tests.golden.columns import COLUMNS_FILE, describe_columns
from tests.golden.exports import EXPORTS, describe_export, export_file
from tests.golden.files import FIELDS_FILE, describe_files
from tests.golden.findings import FINDINGS_FILE, describe_findings
from tests.golden.flags import COMMANDS_FILE, describe_commands
from tests.golden.histories import describe_history
from tests.golden.limits import LIMITS_FILE, describe_limits
from tests.golden.numbers import NUMBERS_FILE, describe_numbers
from tests.golden.runs import APPROVED, RUNS, write_reports
from tests.golden.transcripts import TRANSCRIPTS, transcribe, transcript_file


def main() -> None:
    """Writes every file, and removes those that belong to no run any more."""
    APPROVED.mkdir(exist_ok=True)
    texts = {
        COMMANDS_FILE: describe_commands(),
        COLUMNS_FILE: describe_columns(),
        FIELDS_FILE: describe_files(),
        LIMITS_FILE: describe_limits(),
        NUMBERS_FILE: describe_numbers(),
    }
    with tempfile.TemporaryDirectory() as folder:
        texts[FINDINGS_FILE] = describe_findings(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        texts |= describe_history(Path(folder))
    for name, transcript in TRANSCRIPTS.items():
        with tempfile.TemporaryDirectory() as folder:
            texts[transcript_file(name)] = transcribe(Path(folder), transcript)
    for name in EXPORTS:
        with tempfile.TemporaryDirectory() as folder:
            texts[export_file(name)] = describe_export(Path(folder), name)
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            texts |= write_reports(Path(folder), name)
    for path in APPROVED.iterdir():
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (APPROVED / name).write_text(text, "utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as locks:
        # Nothing is measured: nobody has to wait for whoever uses this machine.
        os.environ[FOLDER_VARIABLE] = locks
        main()
