"""`nox -s pages`: the commands of the pages that take a real model, in the order of their table.

Each is a process of its own in one folder with an odd name, as a reader has who follows the pages. What
a command prints is pasted into a shell, and etprof has to understand what arrives.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import Completed, run_command
from etprof.targets.emulator.installation import locate
from tests.odd_paths import ODD_NAME, pasted, printed_commands
from tests.page_commands import EMULATOR, HOST, ROOT
from tests.unit.test_page_commands import check_pasted

pytestmark = [pytest.mark.pages, pytest.mark.slow]
MOST_S = 900
BLOCK = re.compile(r"^```(?:python|json|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NET = '''
from torch import nn
import torch


class Net(nn.Module):
    """What the page's patterns name: an encoder, blocks and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(64, 64)
        self.blocks = nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 64))
        self.head = nn.Linear(64, 32)

    def forward(self, x):
        return self.head(self.blocks(self.encoder(x)))

    def get_eager_model(self):
        return self

    def get_example_inputs(self):
        return (torch.randn(1, 64),)
'''


STRANGER = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.words = nn.Conv2d(3, 8, 3), nn.Embedding(50, 8)

    def forward(self, image, ids):
        return self.conv(image).mean((2, 3)) + self.words(ids).mean(1)
"""


def block_with(page: str, sign: str) -> str:
    """The page's own file."""
    (found,) = [text for text in BLOCK.findall((ROOT / "docs" / page).read_text()) if sign in text]
    return str(found)


def run(folder: Path, command: str) -> Completed:
    words = [sys.executable, "-m", "etprof", *shlex.split(command)]
    settings = {"ETPROF_LOCKS": str(folder), "COLUMNS": "80", "ETPROF_HISTORY": ""}
    return run_command(words, folder=folder, environment=settings, timeout_s=MOST_S)


def make_tokenizer(path: Path) -> None:
    """A tokenizer that knows the words of the prompt."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = {word: number for number, word in enumerate(["?", "Once", "upon", "a", "time"])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="?"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / ODD_NAME
    (folder / "path" / "to").mkdir(parents=True)
    (folder / "my_model.py").write_text(block_with("own_model.md", "class MyModel:") + NET)
    shutil.copy(folder / "my_model.py", folder / "path" / "to")
    (folder / "net.py").write_text(STRANGER)
    (folder / "tiny_llama.yaml").write_text(block_with("llm.md", "# tiny_llama.yaml"))
    (folder / "tiny_llama.json").write_text(block_with("llm.md", '"n_kv_heads"'))
    generation = {"new_tokens": 4, "prompt_length": 8}
    rows = {"models": [{"model": "decoder", "generation": generation}], "threads": [1]}
    small = {"models": ["toy_cnn"], "precisions": ["fp32"], "threads": [1]}
    for name, matrix in (("llm", {**rows, "precisions": ["fp32"]}), ("matrix", small)):
        (folder / f"{name}.json").write_text(json.dumps({"name": name, **matrix}))
    make_tokenizer(folder / "tokenizer.json")
    return folder


def copy(pattern: str, *names: str) -> Callable[[Path], None]:
    """Gives what an earlier command wrote the name that a page has for it."""

    def do(folder: Path) -> None:
        first = min(folder.glob(pattern), key=lambda path: (len(path.name), path))
        for name in names:
            shutil.copy(first, folder / name)

    return do


DECODER = "out/decoder_xnnpack_fp32.pte"
QUANTISED = "out_decoder/artifacts/decoder_xnnpack_8da4w_channel*.pte"
ARTIFACTS = "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16"
BEFORE: dict[str, tuple[Callable[[Path], None], ...]] = {
    "bare.pte": (
        copy(f"{ARTIFACTS}.pte", "bare.pte"),
        copy(f"{ARTIFACTS}*.etrecord", "bare.etrecord"),
    ),
    "model.etdump": (
        copy("again/*/*.etdump", "model.etdump"),
        copy(f"{ARTIFACTS}.pte", "model.pte"),
        copy(f"{ARTIFACTS}*.etrecord", "model.etrecord"),
    ),
    "llm.pte": (copy(DECODER, "llm.pte"),),
    "llm_fp32.pte": (copy(DECODER, "llm_fp32.pte"), copy(QUANTISED, "llm_8da4w_channel.pte")),
    "peaks.json": (copy("**/peaks.json", "peaks.json"),),
    "out_MyModel/": (lambda folder: check(folder, "export my_model.py:MyModel --dtype fp16", 0),),
}
"""What a command reads under a name of its page's."""


def check(folder: Path, words: str, exit_code: int) -> None:
    for word, steps in BEFORE.items():
        for step in steps if word in words else ():
            step(folder)
    done = run(folder, words)
    assert done.exit_code == exit_code, done.stdout + done.stderr
    for printed in printed_commands(done.stdout + done.stderr):
        check_pasted(pasted(printed))


@pytest.mark.parametrize("command", HOST)
def test_it_runs_on_this_machine(folder: Path, command: str) -> None:
    row = HOST[command]
    check(folder, row.words or command, row.exit_code)


def test_what_a_run_prints_is_pasted_and_runs(folder: Path) -> None:
    """U3-13: from elsewhere, so that the folder's name is in every command."""
    command = [
        "profile",
        f"{ODD_NAME}/{ARTIFACTS}.pte",
        "--out",
        f"{ODD_NAME}/'mine'",
        "--blocks",
        "2",
    ]
    check(folder, "export toy_cnn --dtype fp16", 0)
    done = run(folder.parent, shlex.join(command))
    assert done.exit_code == 0, done.stderr
    printed = printed_commands(done.stdout)
    assert any(ODD_NAME.partition("'")[0] in each for each in printed)
    function = f'etprof() {{ {shlex.quote(sys.executable)} -m etprof "$@"; }}'
    for each in printed:
        script = ["bash", "-c", f"{function}\n{each}"]
        pasted_one = run_command(script, folder=folder.parent, timeout_s=MOST_S)
        assert pasted_one.exit_code == 0, f"{each}\n{pasted_one.stdout}{pasted_one.stderr}"


@pytest.mark.parametrize("command", EMULATOR)
def test_it_runs_in_the_emulator(folder: Path, command: str) -> None:
    try:
        locate()
    except EtprofError as error:
        pytest.skip(str(error))
    row = EMULATOR[command]
    check(folder, row.words or command, row.exit_code)
