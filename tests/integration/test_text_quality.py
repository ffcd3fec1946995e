"""A language model's text beside its speed: what the export knows, and what it refuses."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.cli import main
from etprof.export.quality.text_quality import OWN_TEXT, READ, load_text, perplexity, round_weights
from etprof.export.request import PRECISIONS
from etprof.run.load import Run
from etprof.tables.quality import GENERATION

MODELS = """
    import torch
    from torch import nn
    from etprof.export.quality.text_quality import OWN_TEXT

    class Net(nn.Module):
        '''Knows which byte follows which in the text.'''

        def __init__(self, spike, knows):
            super().__init__()
            self.embed = nn.Embedding(256, 256)
            self.first = nn.Linear(256, 256, bias=False)
            self.output = nn.Linear(256, 256, bias=False)
            counts, text = torch.full((256, 256), 1e-2), OWN_TEXT.encode()
            for one, other in zip(text, text[1:]):
                counts[one, other] += knows
            with torch.no_grad():
                self.embed.weight.copy_(torch.eye(256))
                self.first.weight.copy_(torch.eye(256))
                self.output.weight.copy_((counts / counts.sum(1, keepdim=True)).log().T)
                # No byte of the text is 0; a scale for the row has to hold it all the same.
                self.output.weight[:, 0] = spike

        def forward(self, ids, position):
            scores = self.output(self.first(self.embed(ids[:, -1])))
            return scores + 0.0 * position.to(scores.dtype)

    class Right:
        spike, knows = 0.0, 1.0

        def get_eager_model(self):
            return Net(self.spike, self.knows)

        def get_example_inputs(self):
            return (torch.tensor([[84]]), torch.tensor([0]))

    class Ruined(Right):
        spike = 3000.0

    class Ignorant(Right):
        knows = 0.0
"""
ANYTHING = ("--least-snr", "0", "--least-cosine", "0.0001", "--least-top1", "0.0001")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(textwrap.dedent(MODELS))
    return tmp_path


def quality_of(program: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(Path(f"{program}.json").read_text())["quality"]
    return found


def speeds(run: str) -> list[dict[str, Any]]:
    assessment = assess_run(analyze_run(Run.load(Path(run))))
    return GENERATION.of_each(assessment.insight.experiments).records()


def test_speed_has_the_quality_of_this_very_program_beside_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "m.py:Right", "--dtype", "8da4w_channel", "--out", "m.pte"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"Text, {READ} tokens: perplexity " in told
    found = quality_of("m.pte")
    assert found is not None
    # Four bits a weight cost something, and little.
    ratio = found["perplexity"] / found["eager_perplexity"]
    assert 1.001 < ratio < 1.25
    assert found["verdict"]["answer"] == "passed"
    assert 0 < found["divergence_nats"] < 0.2
    assert 0.7 < found["same_top1"] < 1

    run = ["--blocks", "2", "--iterations", "2", "--min-seconds", "0.01", "--out", "run"]
    words = ["profile", "m.pte", "--generate", "4", "--prompt-length", "4"]
    assert main([*words, *run, "--json"]) == 0
    capsys.readouterr()
    (row, *_) = speeds("run")
    assert row["perplexity_ratio"] == pytest.approx(ratio)
    assert row["quality"] == "passed"
    assert row["decode_tokens_per_second"]
    # Two layers of 256 x 256 in four bits with a scale a row, and a row of the table.
    assert row["step_bytes"] == 2 * (256 * 128 + 256 * 4) + 256 * 4
    assert row["step_rate"] == pytest.approx(
        row["step_bytes"] * row["decode_tokens_per_second"] / 1e9
    )
    assert row["of_stream"] is None

    # Of another program nobody knows it, whatever lies beside that.
    manifest = Path("m.pte.json")
    other = json.loads(manifest.read_text())
    other["quality"]["program"] = "0" * 64
    manifest.write_text(json.dumps(other))
    assert main([*words, *run[:-1], "other", "--json"]) == 0
    (row, *_) = speeds("other")
    assert (row["perplexity"], row["quality"]) == (None, None)
    assert row["decode_tokens_per_second"]


def test_a_ruined_language_model_fails_and_the_layer_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "m.py:Ruined", "--dtype", "8da4w_channel", *ANYTHING, "--out", "m.pte"]
    assert main(words) == 6
    said = capsys.readouterr().err
    assert "the language model is ruined: its perplexity of the text is 256 instead of" in said
    assert "most: output " in said
    assert "--scope output=fp32" in said
    found = quality_of("m.pte")
    assert found is not None
    # A uniform guess has the perplexity of the vocabulary.
    assert found["perplexity"] == pytest.approx(256, rel=1e-3)
    assert [each["module"] for each in found["layers"]] == ["output", "first"]
    assert main(["profile", "m.pte", "--generate", "4", "--prompt-length", "4"]) == 6
    assert "the language model is ruined" in capsys.readouterr().err
    # The way out that it names.
    assert main([*words, "--scope", "output=fp32"]) == 0


def test_what_a_model_does_not_know_it_cannot_lose(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "m.py:Ignorant", "--dtype", "fp32", "--out", "m.pte"]) == 0
    found = quality_of("m.pte")
    assert found is not None
    assert found["verdict"]["answer"] == "unknown"
    assert "does not know the text" in found["verdict"]["reason"]
    assert found["same_tokens"] == found["new_tokens"]
    assert main(["export", "toy_cnn", "--dtype", "fp32", "--out", "c.pte"]) == 0
    assert quality_of("c.pte") is None


def test_a_text_that_the_model_has_no_ids_for_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "m.py:Right", "--dtype", "fp32", "--text", "ids.txt", "--out", "m.pte"]
    Path("ids.txt").write_text(", ".join(["1", "999"] * 20))
    assert main(words) == 6
    assert "does not read the ids 1 to 999" in capsys.readouterr().err
    Path("ids.txt").write_text("1")
    assert main(words) == 2
    assert "--text has 1 tokens" in capsys.readouterr().err
    assert main([*words[:-4], "--text", "no.txt", "--out", "m.pte"]) == 2


def test_perplexity_is_of_the_token_that_comes_next() -> None:
    sure = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]).double())
    assert perplexity(sure, (1, 0, 2)) == pytest.approx(2)
    assert perplexity(sure, (1, 1, 2)) == pytest.approx(math.sqrt(4 * 2))
    assert perplexity(torch.full((2, 3), -math.inf), (0, 1, 2)) is None
    assert perplexity(torch.full((2, 3), math.nan), (0, 1, 2)) is None


def test_weights_are_rounded_by_row_and_by_block() -> None:
    weights = torch.ones(2, 64)
    weights[:, 0] = 100.0
    channel = PRECISIONS["8da4w_channel"].quantization
    assert channel is not None
    assert round_weights(weights, channel)[:, 1:].abs().max() == 0
    torch.testing.assert_close(
        round_weights(torch.ones(2, 64), channel), torch.ones(2, 64), rtol=0.1, atol=0
    )


def test_the_text_is_of_bytes_and_long_enough() -> None:
    assert load_text(None, None).ids == tuple(OWN_TEXT.encode())
    assert len(OWN_TEXT) > READ
