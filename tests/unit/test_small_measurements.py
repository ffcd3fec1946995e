"""Folders, archives and records of measurements that are as small as they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.bench.archives import pack_program
from etprof.run.delegation import DelegationReport
from etprof.run.directory import load_metrics
from etprof.run.optimization import FLOAT_LAYERS, KernelCounts, Trial, describe_trial
from etprof.run.program import AppliedRewrite, ExportManifest
from tests.golden.transcripts import _write_generation
from tests.world.host import etprof, simulated_host
from tests.world.results import GeneratingTarget
from tests.world.sim_target import SimTarget

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.targets.request import RunnerRequest


def test_a_single_calibration_is_in_the_programs_folder_and_needs_no_more_blocks_than_pairs(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.pte").write_bytes(b"program")
    words = ("calibrate", "m.pte", "--pairs", 3, "--min-seconds", 0.01, "--blocks")
    with simulated_host(SimTarget):
        refused = etprof(tmp_path, *words, 2)
        assert (refused.exit_code, refused.stderr) == (
            2,
            "etprof: --blocks 2 is fewer than --pairs 3\n",
        )
        assert etprof(tmp_path, *words, 3).exit_code == 0
    folder = tmp_path / "out_m/runs/calibrate"
    assert (folder / "manifest.json").is_file()
    assert (folder / "calibration.json").is_file()
    assert not (folder / "run1").exists()


class Forgetful(GeneratingTarget):
    """Its seventh launch generates another last token."""

    def result(
        self, request: RunnerRequest, mode: str, latencies: list[int], number: int
    ) -> dict[str, object]:
        self.last = 4 if number == 6 else 9
        return super().result(request, mode, latencies, number)


def test_blocks_that_generated_other_tokens_are_named(tmp_path: Path) -> None:
    _write_generation(tmp_path)
    with simulated_host(lambda **_: Forgetful()):
        etprof(tmp_path, "run", "config.json")
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    differing = {
        name: side.generated.differing_blocks
        for name, side in metrics.experiments.items()
        if side.generated
    }
    assert differing == {"off": [], "sme2": [1]}


def test_a_program_is_sent_compressed(tmp_path: Path) -> None:
    program = tmp_path / "m.pte"
    program.write_bytes(bytes(2**20))
    assert len(pack_program(program)) < 2**14


def test_a_share_counts_work_without_sme2_of_the_original_alone() -> None:
    def share(on_sme2: int) -> float | None:
        counted = KernelCounts(sme2_calls=1, macs_on_sme2=on_sme2)
        return Trial(rewrites=(), macs=10, counted=counted).sme2_share(10)

    assert [share(on_sme2) for on_sme2 in (0, 4, 10, 12)] == [0.0, 0.4, 1.0, 1.0]
    assert Trial(rewrites=(), macs=10, macs_without_sme2=0).sme2_share(10) == 1.0
    assert Trial(rewrites=(), macs=10).sme2_share(10) is None
    assert Trial(rewrites=(), macs_without_sme2=0).sme2_share(0) is None


def test_layers_in_float32_are_a_rewrite_of_as_many_operators() -> None:
    manifest = ExportManifest(
        model="m", backend="xnnpack", precision="int8", rewrites=(AppliedRewrite(name="a"),)
    )
    report = DelegationReport.model_validate({"schema_version": 1, "model": "m", "methods": {}})
    mixed = Trial(rewrites=(FLOAT_LAYERS,), float_layers=("head", "stem"))
    described = describe_trial(mixed, manifest, report, 7)
    assert [(each.name, each.operators) for each in described.applied] == [
        (FLOAT_LAYERS, 2),
        ("a", None),
    ]
    plain = describe_trial(Trial(rewrites=()), manifest, report, 7)
    assert [each.name for each in plain.applied] == ["a"]
