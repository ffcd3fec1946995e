"""What `etprof calibrate --peaks` exports, launches, prints and keeps, on a simulated device."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.measuring import peaks
from etprof.run.peaks import Peaks
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, Failure, Operator, RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from etprof.export.request import ExportedFiles, ExportRequest

US = {"off": 100, "sme2": 25}
MACS, MOVED = 1_000_000, 10_000


class Device(SimTarget):
    """One operator, four times as fast with SME2; by itself it takes two threads."""

    def __init__(self, failure: Failure | None = None) -> None:
        operators = {
            mode: (Operator("Fully Connected (NC, F32) GEMM #1", us),) for mode, us in US.items()
        }
        capabilities = Capabilities(told=("off", "sme2"))
        super().__init__(RunSpec(operators, capabilities, failure=failure or Failure()))

    def default_threads(self) -> int:
        return 2


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Which programs were exported: of a product its work is known, of a stream its bytes."""
    names: list[str] = []

    def export(request: ExportRequest, _: Callable[..., object] | None = None) -> ExportedFiles:
        name, precision = request.model.rpartition(":")[2], request.precision
        names.append(f"{name} {precision}")
        files = request.files()
        files.pte.parent.mkdir(parents=True, exist_ok=True)
        files.pte.write_bytes(names[-1].encode())
        facts = {"model": name, "backend": "xnnpack", "precision": precision}
        files.manifest.write_text(json.dumps({**facts, "methods": {"forward": {}}}))
        work = {"macs": MACS} if name == "Product256" else {}
        moved = {"macs": 0, "input_bytes": MOVED, "output_bytes": MOVED, **work}
        operator = {"name": "linear", "operator": "aten.linear.default", "delegate": 0, **moved}
        node = {"kind": "FullyConnected", "operators": ["linear"], "attribution": "exact", **moved}
        delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": [node]}
        method = {"operators": [operator], "delegates": [delegate]}
        report = {"schema_version": 1, "model": name, "methods": {"forward": method}}
        files.report.write_text(json.dumps(report))
        return files

    def find(request: ExportRequest) -> ExportedFiles | None:
        return request.files() if request.files().pte.exists() else None

    monkeypatch.setattr("etprof.export.exporter.export_model", export)
    monkeypatch.setattr("etprof.export.exporter.find_export", find)
    monkeypatch.setattr(peaks, "PRODUCTS", ("Product256",))
    monkeypatch.setattr(peaks, "STREAMS", ("Stream8K",))
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    return names


def test_peaks_are_measured_in_all_modes_and_kept_for_the_device(
    exported: list[str], tmp_path: Path
) -> None:
    device = Device()
    with simulated_host(lambda **_: device):
        done = etprof(tmp_path, "calibrate", "--peaks", "--threads", 1, "--out", "peaks")
    assert done.exit_code == 0
    programs = ["Product256 fp32", "Product256 fp16", "Product256 int8", "Stream8K fp32"]
    assert exported == programs
    # THEN each was launched six times for its operators, in both modes
    traced = [request for request in device.requests if request.etdump is not None]
    assert len(traced) == 4 * 2 * 6
    assert {request.threads for request in traced} == {1}
    document = json.loads((tmp_path / "peaks/peaks.json").read_text("utf-8"))
    assert len(document["peaks"]) == 4 * 2
    for peak in Peaks.model_validate(document).peaks:
        work = 2 * MACS if peak.program == "Product256" else 2 * MOVED
        rate = work / (1000 * US[peak.sme])
        assert peak.launches == 6
        assert math.isclose(peak.high, rate, rel_tol=0.02)
    # AND it was told, and is kept for the reports of this device
    assert f"Kept for {document['device']}: reports of its runs show them" in done.stdout
    (kept,) = (tmp_path / "cache/peaks").iterdir()
    assert json.loads(kept.read_text("utf-8")) == document


def test_what_is_asked_for_is_exported_once_and_takes_one_thread_and_the_usual_ones(
    exported: list[str], tmp_path: Path
) -> None:
    words = ("calibrate", "--peaks", "--precisions", "int8", "--launches", 2)
    for _ in range(2):
        device = Device()
        with simulated_host(lambda device=device, **_: device):
            assert etprof(tmp_path, *words, "--out", "peaks").exit_code == 0
        traced = [request for request in device.requests if request.etdump is not None]
        assert len(traced) == 2 * 2 * 2 * 2
        assert {request.threads for request in traced} == {1, 2}
    assert exported == ["Product256 int8", "Stream8K fp32"]


def test_a_peak_that_was_not_measured_is_no_answer(exported: list[str], tmp_path: Path) -> None:
    device = Device(Failure(launches=frozenset({0, 1, 2, 3, 4, 5, 6})))
    with simulated_host(lambda **_: device):
        done = etprof(tmp_path, "calibrate", "--peaks", "--threads", 1, "--out", "peaks")
    assert exported
    assert done.exit_code != 0
    assert "etprof: not every peak was measured: " in done.stderr
    assert not (tmp_path / "peaks/peaks.json").exists()
    assert not (tmp_path / "cache").exists()


def test_each_platform_has_a_folder_of_its_own(exported: list[str], tmp_path: Path) -> None:
    words = ("calibrate", "--peaks", "--precisions", "fp32", "--launches", 2, "--threads", 1)
    with simulated_host(lambda **_: Device()):
        assert etprof(tmp_path, *words).exit_code == 0
    assert exported
    (place,) = tmp_path.glob("**/peaks.json")
    assert place.relative_to(tmp_path) == Path("out_peaks/runs/linux/peaks.json")
