"""Holds every predicted SME2 path against the microkernels that are counted under emulation.

    python benchmarks/prediction_check.py [--outdir DIR] [--models LIST] [--precisions LIST]

Exports each model in each precision, runs it once with SME2 in `etprof emulator` and compares, for
every convolution and matrix product, the export's prediction with the microkernels that were called.
Prints one line per program, the disagreements, and the sum; returns 1 when there is any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.analysis.split.evidence import OperatorEvidence, read_evidence
from etprof.backends.xnnpack.labels import canonical_kind
from etprof.backends.xnnpack.sme import PRODUCTS
from etprof.base.records import read_record
from etprof.export.exporter import export_model
from etprof.export.request import PRECISIONS, ExportRequest
from etprof.run.delegation import DelegationReport
from etprof.run.kernel_trace import read_kernel_trace
from etprof.run.program import describe_program
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.export.request import ExportedFiles
    from etprof.run.delegation import DelegateNode

ALL_PRECISIONS = (*PRECISIONS, "8da4w_b32")
MODELS = ("toy_cnn", "mobilenet_v3_small", "transformer_encoder")


@dataclass(frozen=True)
class Pair:
    """One product of the program: what was predicted and what ran."""

    node: DelegateNode
    operator: OperatorEvidence

    @property
    def agrees(self) -> bool:
        """Whether an SME2 microkernel was called exactly where one was predicted."""
        predicted = self.node.prediction is not None and self.node.prediction.sme2
        return predicted == (self.operator.level == "sme2")


def main() -> int:
    """Prints the comparison; returns 1 for any disagreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=ALL_PRECISIONS)
    arguments = parser.parse_args()
    products = disagreements = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        for model in arguments.models:
            for precision in arguments.precisions:
                pairs = list(_compare(_export(model, precision, folder)))
                wrong = [pair for pair in pairs if not pair.agrees]
                products, disagreements = products + len(pairs), disagreements + len(wrong)
                _show(f"{model} {precision}", pairs, wrong)
    print(f"{products} products, {disagreements} predicted otherwise than they ran")
    return 1 if disagreements else 0


def _export(model: str, precision: str, folder: Path) -> ExportedFiles:
    request = ExportRequest(model, precision, outdir=folder)
    return request.files() if request.files().manifest.exists() else export_model(request)


def _compare(files: ExportedFiles) -> Iterator[Pair]:
    """Yields every product of every method, in order of execution."""
    report = read_record(DelegationReport, files.report, way_out="export again")
    for method, described in report.methods.items():
        operators = _run(files, method)
        for number, delegate in enumerate(described.delegates):
            nodes = [node for node in delegate.nodes if node.kind in PRODUCTS]
            ran = [each for owner, each in operators if owner == number]
            yield from (Pair(*pair) for pair in zip(nodes, ran, strict=True))


def _run(files: ExportedFiles, method: str) -> list[tuple[int | None, OperatorEvidence]]:
    """Runs a method once with SME2; returns its products with their delegate calls' numbers."""
    program = describe_program(files.pte, method=method)
    with tempfile.TemporaryDirectory() as name:
        request = RunnerRequest(
            model=program.model,
            inputs=program.inputs,
            method=method,
            iterations=1,
            threads=1,
            sme="sme2",
            kernel_trace=Path(name) / "kernels.json",
            result=Path(name) / "result.json",
        )
        EmulatorTarget().run(request)
        trace = read_kernel_trace(Path(name) / "kernels.json")
    found = zip(trace.operators, read_evidence(trace).operators, strict=True)
    return [(traced.delegate, each) for traced, each in found if _is_product(each)]


def _is_product(operator: OperatorEvidence) -> bool:
    products = {canonical_kind(kind) for kind in PRODUCTS}
    return operator.is_delegated and canonical_kind(operator.parsed_name.base) in products


def _show(title: str, pairs: list[Pair], wrong: list[Pair]) -> None:
    predicted = sum(pair.operator.level == "sme2" for pair in pairs)
    print(f"{title}: {len(pairs)} products, {predicted} on SME2, {len(wrong)} disagree", flush=True)
    for pair in wrong:
        prediction = pair.node.prediction
        said = prediction.reason if prediction else "nothing"
        kernels = ", ".join(kernel.name for kernel in pair.operator.kernels) or "no KleidiAI kernel"
        print(f"  {pair.operator.name}: predicted {said}; ran {kernels}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
