"""S3-1: a file with a payload is data. Nothing of it runs; exit code and message name it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

pytestmark = pytest.mark.slow
PARAMS = {"dim": 64, "n_layers": 1, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 64}
STATIC_CACHE = "{use_kv_cache: true, static_quantize_kv_cache: true, enable_dynamic_shape: false}"
LIBRARY = """
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { open("%s", O_CREAT | O_WRONLY, 0600); }
"""


class Payload:
    """What a pickle makes of it is a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """There when a payload ran."""
    (tmp_path / "p.json").write_text(json.dumps(PARAMS))
    return tmp_path / "ran"


def write_checkpoint(path: Path, mark: Path) -> None:
    """Writes a checkpoint as torch.save does, with a payload beside no tensor."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"x": Payload(mark)}, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def run(folder: Path, *words: str, environment: dict[str, str] | None = None) -> Completed:
    command = [sys.executable, "-m", "etprof", *words]
    return run_command(command, folder=folder, timeout_s=300, environment=environment)


def write_library(folder: Path, mark: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc")
    (folder / "library.c").write_text(LIBRARY % mark)
    library = folder / "weights_map.bin"
    done = run_command([compiler, "-shared", "-fPIC", folder / "library.c", "-o", library])
    assert done.exit_code == 0, done.stderr
    return library


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["export", "dry run"])
def test_a_library_that_a_yaml_names_is_not_loaded(
    tmp_path: Path, mark: Path, flags: list[str]
) -> None:
    write_library(tmp_path, mark)
    (tmp_path / "b.yaml").write_text(
        f"base: {{params: p.json}}\nmodel: {STATIC_CACHE}\nexport: {{so_library: weights_map.bin}}\n"
    )
    done = run(tmp_path, "export-llm", "b.yaml", *flags)
    assert not mark.exists()
    assert done.exit_code == 2, done.stderr
    assert "b.yaml: export.so_library: weights_map.bin is a native library" in done.stderr


def test_a_library_that_the_command_line_names_is_loaded(tmp_path: Path, mark: Path) -> None:
    library = write_library(tmp_path, mark)
    (tmp_path / "b.yaml").write_text(f"base: {{params: p.json}}\nmodel: {STATIC_CACHE}\n")
    words = ("export-llm", "b.yaml", "--so-library", library.name)
    shown = json.loads(run(tmp_path, *words, "--dry-run", "--json").stdout)
    assert shown["reads"]["export.so_library"]["path"] == str(library)
    assert shown["reads"]["export.so_library"]["read_as"].startswith("a native library")
    assert not mark.exists()
    done = run(tmp_path, *words)
    assert mark.exists()
    # It is a library without the operators that the export needs.
    assert done.exit_code == 6, done.stderr


@pytest.mark.parametrize(
    "environment", [{}, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}], ids=["", "careless"]
)
def test_a_checkpoint_of_a_yaml_is_tensors_alone(
    tmp_path: Path, mark: Path, environment: dict[str, str]
) -> None:
    write_checkpoint(tmp_path / "w.pth", mark)
    (tmp_path / "b.yaml").write_text("base: {params: p.json, checkpoint: w.pth}\n")
    done = run(tmp_path, "export-llm", "b.yaml", environment=environment)
    assert not mark.exists()
    assert done.exit_code == 6, done.stderr
    assert "mkdir" in done.stderr
    assert "base.checkpoint" in done.stderr


def test_a_loader_that_asks_for_whole_pickles_gets_none(tmp_path: Path, mark: Path) -> None:
    """As ExecuTorch's llama3_2_vision asks: torch.load(…, weights_only=False)."""
    write_checkpoint(tmp_path / "w.pth", mark)
    code = (
        "import torch; from etprof.export_llm.child import read_tensors_alone; "
        "read_tensors_alone(); torch.load('w.pth', weights_only=False)"
    )
    environment = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = run_command([sys.executable, "-c", code], folder=tmp_path, environment=environment)
    assert not mark.exists()
    assert "Weights only load failed" in done.stderr


def write_package(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_checkpoint_of_a_model_is_tensors_alone(tmp_path: Path, mark: Path) -> None:
    write_checkpoint(tmp_path / "w.pth", mark)
    done = run(tmp_path, "export", "toy_cnn", "--weights", "w.pth")
    assert not mark.exists()
    assert done.exit_code == 4, done.stderr
    assert "w.pth" in done.stderr


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64,
}  # fmt: skip
HUB = "someone/kernel"
FOLDERS = {
    "code": (
        {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}},
        "auto_map names Python files",
    ),
    "kernel": ({**LLAMA, "attn_implementation": HUB}, f"attn_implementation '{HUB}' is code"),
    "kernel by another name": (
        {**LLAMA, "_attn_implementation": HUB},
        f"_attn_implementation '{HUB}' is code",
    ),
    "kernel of a part": (
        {**LLAMA, "_attn_implementation": {"": HUB}},
        f"_attn_implementation '{HUB}' is code",
    ),
}
KERNELS = """
import os
class Thing:
    def __init__(self, *_, **__):
        pass
def get_kernel(*_, **__):
    os.mkdir({mark!r})
def anything(*_, **__):
    return lambda same: same
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Thing if name[0].isupper() else anything
"""
"""A package `kernels`, which loads native code from a hub."""


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_transformers_brings_no_code(tmp_path: Path, mark: Path, name: str) -> None:
    config, told = FOLDERS[name]
    folder, site = tmp_path / "m", tmp_path / "site"
    code = f"import os\nos.mkdir({str(mark)!r})\n"
    write_package(folder, {"config.json": json.dumps(config), "mine.py": code})
    write_package(
        site,
        {
            "kernels/__init__.py": KERNELS.format(mark=str(mark)),
            "kernels-0.18.2.dist-info/METADATA": "Name: kernels\nVersion: 0.18.2\n",
            "kernels-0.18.2.dist-info/RECORD": "kernels/__init__.py,,\n",
        },
    )
    done = run(tmp_path, "export", f"hf:{folder}", environment={"PYTHONPATH": str(site)})
    assert not mark.exists()
    assert done.exit_code == 4, done.stderr
    assert f"{folder}/config.json: {told}" in done.stderr


def test_an_adapter_loads_no_other_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')
    done = run(tmp_path, "export", f"hf:{tmp_path}")
    assert done.exit_code == 4, done.stderr
    assert "adapter_config.json would make transformers load another model" in done.stderr


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_tokenizer_is_data(tmp_path: Path, mark: Path, name: str) -> None:
    from etprof.base.errors import InputFileError
    from etprof.run.tokenizer import encode_prompt

    (tmp_path / name).write_bytes(pickle.dumps(Payload(mark)))
    with pytest.raises(InputFileError, match=name):
        encode_prompt(tmp_path / name, "a text")
    assert not mark.exists()
