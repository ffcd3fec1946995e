"""Exports every case in every precision and prints a table: `python -m tests.reports [NAME …]`."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import EtprofError
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from tests.reports import floors, kernels, layouts, public, refused, stateful, varying
from tests.reports.files import write_model

if TYPE_CHECKING:
    from collections.abc import Iterator

PRECISIONS = ("fp32", "fp16", "int8")
REFUSED = {"Forgotten", "CroppingPad", "Bucketed"}
"""What no program can be made of, so that the operator or attribute is named: state of Python's own,
and a padding that takes away or places among boundaries, of which ExecuTorch 1.5.1 has no kernel."""


TOO_COARSE = {"SettledNet"}
"""What int8 is no precision for: it amplifies rounding by some 35 dB, as fp16 shows, where each of its
layers in int8 leaves 40 dB. Eager PyTorch in int8 is as far from float32."""
REFUSED_IN_HALVES = {"Spectrum", "Scattered"}
"""What PyTorch itself cannot compute in half precision: it says so, and what to do."""


@dataclass(frozen=True)
class Case:
    """A model, and whether its export has to succeed."""

    module: str
    model: str
    arguments: str = ""

    @property
    def is_right(self) -> bool:
        """Whether a program of it is right; the others have a planted fault, or lost state."""
        return not self.arguments.startswith("is_wrong") and self.model not in REFUSED

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.model}{f' ({self.arguments})' if self.arguments else ''}"


def cases() -> Iterator[Case]:
    """Yields all cases."""
    for module in (stateful, refused, floors, public, layouts, varying, kernels):
        for model in module.INPUTS:
            name = module.__name__.rpartition(".")[2]
            yield Case(name, model.__name__)
            if issubclass(model, stateful.Stateful):
                yield Case(name, model.__name__, "is_wrong=True")
    for seed in range(1, 30):
        yield Case("floors", "SettledNet", f"seed={seed}")


def try_case(case: Case, precision: str) -> tuple[bool, str]:
    """Exports a case; returns whether that is what should come of it, and what came."""
    with tempfile.TemporaryDirectory() as folder:
        name = write_model(Path(folder), case.module, case.model, case.arguments)
        request = ExportRequest(name, precision=precision, outdir=Path(folder))
        try:
            export_model(request)
        except EtprofError as error:
            nothing = "nothing that" in str(error)
            is_halved = precision == "fp16" and case.model in REFUSED_IN_HALVES
            is_true = is_halved and "export it as fp32, or write that part for half" in str(error)
            is_coarse = precision == "int8" and case.model in TOO_COARSE
            is_precision = is_coarse and "not faithful" not in str(error)
            return nothing or is_true or is_precision or not case.is_right, str(error)
        manifest = json.loads(request.files().manifest.read_text())
        outputs = manifest["methods"]["forward"]["check"]["outputs"]
        ratios = [output["snr_db"] for output in outputs if output["snr_db"] is not None]
        told = f"{min(ratios):.1f} dB" if ratios else "equal"
        outside = len(manifest["fallbacks"])
        return case.is_right, told + (f", {outside} outside" if outside else "")


def main(names: list[str]) -> int:
    """Prints the table; returns 1 where something came out otherwise than it should."""
    failures = 0
    print("| case | precision | as it should | what came |\n|---|---|---|---|")
    for case in cases():
        for precision in PRECISIONS if not names or case.model in names else ():
            is_expected, told = try_case(case, precision)
            failures += not is_expected
            row = (case.name, precision, "yes" if is_expected else "**no**", told[:300])
            print(f"| {' | '.join(row)} |", flush=True)
    print(f"\n{failures} otherwise than they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
