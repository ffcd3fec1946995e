"""Tables of embeddings in 8, 4 and 2 bits, in programs that are exported and executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.base.errors import ExportError, UsageError
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest
from etprof.model_registry.eager_model import EagerModelBase
from etprof.run.delegation import DelegationReport
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(8, 64)
        self.head = nn.Linear(64, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.words(ids) + self.places(ids % 8))
        return head


class Language(EagerModelBase):
    """Two tables and a product."""

    def get_eager_model(self) -> nn.Module:
        return Words()

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.tensor([[1, 500, 999]]),)


def look_ups(files: ExportedFiles) -> dict[str, str]:
    """Returns by module what looks its rows up; each is an instruction that runs."""
    report = DelegationReport.model_validate_json(files.report.read_bytes())
    return {
        each.origin.module_path: each.operator
        for each in report.methods["forward"].operators
        if "embedding" in each.operator and each.instruction is not None
    }


@pytest.mark.parametrize(
    ("precision", "words", "operator", "least_db"),
    [
        ("fp32", "int8", "embedding_byte", 35),
        ("fp16", "int4_b32", "embedding_4bit", 15),
        ("fp32", "int2", "embedding_2bit", 2),
        pytest.param("fp32", "int2_b32", "embedding_2bit", 2, marks=pytest.mark.slow),
        pytest.param("int8", "int8_b32", "embedding_byte", 25, marks=pytest.mark.slow),
        pytest.param("8da4w_b32", "int4", "embedding_4bit", 10, marks=pytest.mark.slow),
        pytest.param("bf16", "int8", "embedding_byte", 30, marks=pytest.mark.slow),
    ],
)
def test_a_table_is_small_and_its_rows_are_right(
    precision: str, words: str, operator: str, least_db: float, tmp_path: Path
) -> None:
    options = ExportOptions(embeddings=words)
    request = ExportRequest(
        f"{__file__}:Language",
        precision,
        outdir=tmp_path,
        options=options,
        allow_inaccurate=True,
    )
    files = export_model(request)
    found = look_ups(files)
    assert set(found) == {"words", "places"}
    assert all(operator in each for each in found.values())
    manifest = load_export_manifest(files.pte)
    assert manifest is not None
    assert manifest.embeddings == ("words", "places")
    check = manifest.methods["forward"].check
    assert check is not None
    (output,) = check.outputs
    assert output.snr_db is not None
    assert output.snr_db > least_db
    # The program computes what torchao says that it does.
    assert {each.question: each.answer for each in check.verdicts}["lowering"] == "passed"
    # 64 000 values and their scales, and the rest of the program.
    bits = int(words[3])
    assert files.pte.stat().st_size < 64_000 * bits / 8 + 2000 * 4 + 16_000


def test_a_table_that_a_scope_covers_stays(tmp_path: Path) -> None:
    options = ExportOptions(embeddings="int8", scopes=("places=fp32",))
    request = ExportRequest(
        f"{__file__}:Language", "fp16", outdir=tmp_path, options=options, allow_inaccurate=True
    )
    found = look_ups(export_model(request))
    assert found["places"] == "embedding.default"
    assert "embedding_byte" in found["words"]


def test_rows_may_be_the_output(tmp_path: Path) -> None:
    options = ExportOptions(embeddings="int4")
    request = ExportRequest(
        f"{__file__}:Odd", "fp32", outdir=tmp_path, options=options, allow_inaccurate=True
    )
    manifest = load_export_manifest(export_model(request).pte)
    assert manifest is not None
    assert manifest.embeddings == ("0",)


def test_what_has_no_table_or_no_such_form_is_refused(tmp_path: Path) -> None:
    for model, words, error, told in (
        ("toy_cnn", "int8", ExportError, "no nn.Embedding"),
        (f"{__file__}:Language", "int3", UsageError, "choose from int8, int8_b32"),
        (f"{__file__}:Odd", "int8_b32", ExportError, r"rows of 0 have 12 values.*--scope 0=fp32"),
    ):
        options = ExportOptions(embeddings=words)
        request = ExportRequest(model, "fp32", outdir=tmp_path, options=options)
        with pytest.raises(error, match=told):
            export_model(request)
    assert not list(tmp_path.iterdir())


class Odd(EagerModelBase):
    """Rows that are no whole number of blocks."""

    def get_eager_model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(10, 12))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.tensor([[1, 5]]),)
