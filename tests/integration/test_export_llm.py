"""`etprof export-llm` with the YAML of docs/llm.md, and with another architecture, for real."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "llm.md").read_text()


def run(folder: Path, *words: str | Path) -> Completed:
    command = [sys.executable, "-m", "etprof", *words]
    return run_command(command, folder=folder, timeout_s=600)


def block(kind: str) -> str:
    """The page's first code block of a kind below the heading of the command."""
    section = PAGE.split("## ExecuTorch's architectures")[1]
    found = re.search(rf"^```{kind}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's example, with a tokenizer."""
    folder = tmp_path_factory.mktemp("export_llm")
    # By its own process: what it imports warns.
    code = (
        "import sys; from pathlib import Path; from tests.integration.llm_export import train_tokenizer; "
        "train_tokenizer(Path(sys.argv[1]))"
    )
    made = run_command([sys.executable, "-c", code, folder / "tokenizer.json"], timeout_s=300)
    assert made.exit_code == 0, made.stderr
    yaml = block("yaml").replace("base:\n", "base:\n  tokenizer_path: tokenizer.json\n", 1)
    (folder / "tiny_llama.yaml").write_text(yaml)
    (folder / "tiny_llama.json").write_text(block("json"))
    done = run(folder, "export-llm", "tiny_llama.yaml", "-o", "tiny_llama.pte")
    assert done.exit_code == 0, done.stderr
    return folder


def test_the_pages_example_is_exported_and_described(exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    beside = {
        f"tiny_llama.pte{end}" for end in ("", ".json", ".etrecord", ".delegation.json", ".log")
    }
    assert names == beside | {"tokenizer.json", "tiny_llama.yaml", "tiny_llama.json"}
    manifest = json.loads((exported / "tiny_llama.pte.json").read_text())
    asked = manifest["options"]["llm"]
    assert asked["weights"] == "random"
    assert asked["constants"]["get_max_context_len"] == 128
    assert asked["constants"]["get_bos_id"] == 1
    assert (
        asked["constants"]["get_tokenizer_sha256"]
        == asked["files"]["base.tokenizer_path"]["sha256"]
    )
    assert list(manifest["methods"]) == ["forward"]
    assert manifest["versions"]["executorch"].startswith("1.")
    report = json.loads((exported / "tiny_llama.pte.delegation.json").read_text())
    # Four bits a weight with a scale a channel, the form that SME2 takes.
    assert report["methods"]["forward"]["summary"]["predicted_sme2_macs_share"] == 1.0


def test_it_generates_with_its_own_tokenizer_alone(exported: Path, tmp_path: Path) -> None:
    words = (
        "profile",
        "tiny_llama.pte",
        "--generate",
        "8",
        "--blocks",
        "1",
        "--min-seconds",
        "0.01",
        "--out",
        tmp_path / "run",
    )
    prompt = ("--prompt", "Once upon a time", "--tokenizer")
    done = run(exported, *words, *prompt, "tokenizer.json", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "tiny_llama"
    other = tmp_path / "other.json"
    other.write_text((exported / "tokenizer.json").read_text() + " ")
    done = run(exported, *words, *prompt, other)
    assert done.exit_code == 2
    assert "other.json is not the tokenizer that tiny_llama.pte was exported with" in done.stderr


QWEN3 = {
    "dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "vocab_size": 256,
    "hidden_dim": 128, "norm_eps": 1e-6, "use_qk_norm": True, "qk_norm_before_rope": True,
    "attention_qkv_bias": False, "use_hf_rope": True, "rope_theta": 1000000.0,
}  # fmt: skip


def test_another_architecture_has_random_weights_and_custom_operators(tmp_path: Path) -> None:
    # GIVEN Qwen 3, whose weights ExecuTorch would download, and attention by an operator of its own
    (tmp_path / "qwen.json").write_text(json.dumps(QWEN3))
    (tmp_path / "qwen.yaml").write_text(
        "base: {model_class: qwen3_0_6b, params: qwen.json}\n"
        "model: {use_kv_cache: true, use_sdpa_with_kv_cache: true}\n"
        "backend: {xnnpack: {enabled: true}}\n"
    )
    # WHEN it is exported
    done = run(tmp_path, "export-llm", "qwen.yaml", "--json", "--outdir", ".")
    assert done.exit_code == 0, done.stderr
    # THEN it is said whose runner has the operators, and no network was asked
    document = json.loads(done.stdout)
    assert document["manifest"]["options"]["llm"]["weights"] == "random"
    assert "llama::" in document["manifest"]["log"][0]
    assert "--preset host-source" in document["manifest"]["log"][0]
    assert len(document["delegation"]["methods"]["forward"]["operators"]) > 50
