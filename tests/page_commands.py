"""Every command of etprof that a page quotes, and what runs it: a command without a row is an error.

A row's command may have words in place of the page's: a file or a model for a placeholder, and a small
model for a large one. What is only parsed says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "llms.txt",
    ROOT / "skills/etprof/SKILL.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
CODE = re.compile(r"^```(\w*)\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\S*/)?etprof (?!COMMAND\b)([a-z].*)")
IN_ORDER = {
    "docs/android.md": "tests/integration/android/test_page_commands.py",
    "docs/tutorial.md": "tests/integration/test_tutorial.py",
    "skills/etprof/SKILL.md": "tests/integration/test_skill.py",
}
"""Pages whose commands a test of their own runs in order: of the tutorial, those of its blocks."""
Lane = Literal["simulated", "host", "emulator", "served", "named", "elsewhere", "parsed"]


@dataclass(frozen=True)
class Quoted:
    """A command on a page."""

    page: str
    text: str
    """What follows `etprof`, without a comment."""
    language: str | None
    """Of its block; None in a sentence or a table."""


@dataclass(frozen=True)
class Row:
    """What runs a command."""

    lane: Lane
    words: str = ""
    """What runs, where it is not the very command."""
    exit_code: int = 0
    why: str = ""
    """Of `elsewhere` the file that runs it, of `parsed` what is missing."""
    without: str = ""
    """A file that is not to be there."""


def commands_in(text: str) -> Iterator[str]:
    """Yields what follows `etprof` in each command of shell text."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        for part in re.split(r"&&|\||>", line):
            if found := COMMAND.match(part.strip()):
                yield found[1]


def quoted_commands() -> list[Quoted]:
    """Every command of every page, in order."""
    return [
        Quoted(page.relative_to(ROOT).as_posix(), without_comment(command), language)
        for page in PAGES
        for found in CODE.finditer(page.read_text("utf-8"))
        for language in [None if found[3] else found[1]]
        for command in commands_in(found[2] or found[3])
    ]


def without_comment(command: str) -> str:
    """A shell's comment begins behind a blank."""
    return re.sub(r"\s+#.*", "", command).strip()


def has_own_test(quoted: Quoted) -> bool:
    """Whether a test runs its page in order."""
    if quoted.page == "docs/tutorial.md":
        return quoted.language == "sh"
    return quoted.page in IN_ORDER


SIMULATED: dict[str, Row] = {
    "run CONFIG.json": Row("simulated", "run config.json"),
    "run config.json": Row("simulated"),
    "run config.json --dry-run": Row("simulated"),
    "run config.json --resume": Row("simulated", "run done.json --resume"),
    "run CONFIG --resume": Row("simulated", "run done.json --resume"),
    "run phone.json": Row("simulated"),
    "run --from-manifest RUN_DIR": Row("simulated", "run --from-manifest done/runs/linux"),
    "profile before.pte --against after.pte": Row("simulated"),
    "profile baseline.pte --against optimized.pte": Row("simulated"),
    "profile A --against B": Row("simulated", "profile before.pte --against after.pte"),
    "profile model.pte": Row("simulated"),
    "compare A B": Row("simulated"),
    "compare A1 A2 --against B1 B2": Row("simulated"),
    "compare A1 A2 A3 --against B1 B2 B3": Row("simulated"),
    "calibrate FILE.pte": Row("simulated", "calibrate model.pte"),
    "calibrate FILE.pte --runs 6": Row("simulated", "calibrate model.pte --runs 6"),
    "report RUN_DIR": Row("simulated", "report A"),
    "report RUN_DIR --format csv": Row("simulated", "report A --format csv"),
    "report RUN_DIR --format LIST": Row("simulated", "report A --format md,json,hud"),
    "report RUN_DIR --thresholds FILE.json": Row(
        "simulated", "report A --thresholds thresholds.json"
    ),
    "report RUN_DIR --reference RUN_DIR": Row("simulated", "report A --reference B"),
    "report RUN_DIR RUN_DIR ...": Row("simulated", "report A B"),
    "report out_toy_cnn/runs/fp16 out_toy_cnn/runs/int8 --out both": Row("simulated"),
    "validate RUN_DIR": Row("simulated", "validate done/runs/linux"),
    "doctor": Row("simulated"),
    "doctor --library FILE": Row("simulated", "doctor --library libetprof.so"),
    "history add out_toy_cnn/runs/linux": Row("simulated"),
    "history add RUN_DIR": Row("simulated", "history add A"),
    "history add --device rack-3 …": Row("simulated", "history add --device rack-3 A"),
    "history list": Row("simulated"),
    "history pin": Row("simulated"),
    "history pin release 1": Row("simulated"),
    "history accept": Row("simulated"),
    "history accept RUN --why TEXT": Row("simulated", "history accept 2 --why meant"),
    "history check": Row("simulated", exit_code=1),
    "history check --baseline window:7": Row("simulated", exit_code=1),
    "history check --baseline release": Row("simulated", exit_code=1),
    "history check --baseline B": Row(
        "simulated", "history check --baseline branch:main", exit_code=1
    ),
    "history noise": Row("simulated"),
    "history changes": Row("simulated"),
    "history export all.json": Row("simulated"),
    "history export hud.json --format hud --branch main": Row("simulated"),
    "history import all.json --store postgresql://ci@db/etprof": Row(
        "simulated", "history import runs.json --store other.sqlite"
    ),
    "dashboard --store nightly.sqlite --export site": Row("simulated"),
    "dashboard": Row("served", "dashboard --port 0"),
    "dashboard --store postgresql://bench@db/history --port 0": Row(
        "served", "dashboard --store nightly.sqlite --port 0"
    ),
    "import model.etdump runner.log --sme sme2 --platform android": Row("simulated"),
    "analyze out_model/runs/android": Row("simulated"),
    "analyze model.etdump": Row("simulated"),
    "analyze FILE.etdump": Row("simulated", "analyze model.etdump"),
    "analyze model.etdump --clock-hz 800e6": Row("simulated"),
    "bench --schema": Row("simulated"),
    "bench matrix.json --dry-run": Row("simulated"),
    "config schema": Row("simulated"),
    "config check config.json": Row("simulated"),
    "config init --template linux --model my.pte --out config.json": Row(
        "simulated", without="config.json"
    ),
    "config init --template mac --model my.pte --out config.json": Row(
        "simulated", without="config.json"
    ),
    "config init --template emulator": Row("simulated"),
    "completion bash": Row("simulated"),
    "emulator setup --remove": Row("simulated"),
}
"""Run with every test, in a folder with known runs; what is measured is known, too."""

HOST: dict[str, Row] = {
    "profile toy_cnn": Row("host"),
    "profile toy_cnn --threads 1": Row("host"),
    "profile MODEL": Row("host", "profile toy_cnn --out again"),
    "export toy_cnn --dtype fp16 --rewrite kept_dimensions": Row("host"),
    "export toy_cnn --dtype fp16 --rewrite half_pointwise_weights": Row("host"),
    "export toy_cnn --rewrite kept_dimensions,plain_views": Row("host"),
    "export MODEL --dtype fp16": Row("host", "export toy_cnn --dtype fp16"),
    "export MODEL --explain": Row("host", "export toy_cnn --explain"),
    "export MODEL --full": Row("host", "export toy_cnn --full"),
    "export MODEL --trace": Row("host", "export toy_cnn --trace"),
    "export MODEL --rewrite all": Row("host", "export toy_cnn --rewrite all"),
    "export --float-layers LIST": Row("host", "export toy_cnn --quantize int8 --float-layers stem"),
    "export mobilenet_v3_small --dtype fp16": Row("host"),
    "export mobilenet_v3_small --quantize int8 --scope 'features.0.*=fp32,type:add=fp32'": Row(
        "host"
    ),
    "export mobilenet_v3_small --dtype fp16 --rewrite all": Row("host"),
    "export vit_tiny --rewrite all --rewrite-except 'spelled_norms=blocks.0.*'": Row("host"),
    "export --model path/to/my_model.py:MyModel --quantize int8 --outdir out": Row("host"),
    "profile net.py:Net --input 1x3x224x224 --input int64:1x17": Row("host"),
    "profile toy_cnn --input 4x3x32x32": Row("host"),
    "docs PAGE": Row("host", "docs own_model"),
    "docs F5": Row("host"),
    "export my_model.py:Net --quantize int8 --scope '*=fp32,encoder=int8_dynamic'": Row("host"),
    "export my_model.py:Net --dtype 8da4w_b32 --scope 'head=fp32,blocks.0.*=8da4w_b64'": Row(
        "host"
    ),
    "export my_model.py:MyModel --dtype fp16 --explain": Row("host"),
    "profile toy_cnn:fp16 --against toy_cnn:int8": Row("host"),
    "profile toy_cnn:fp32 --against toy_cnn:fp16 --threads 1": Row("host"),
    "profile FILE.pte --etrecord FILE.etrecord": Row(
        "host", "profile bare.pte --etrecord bare.etrecord"
    ),
    "profile mobilenet_v3_small": Row("host"),
    "optimize MODEL --dtype fp16": Row("host", "optimize toy_cnn --dtype fp16"),
    "optimize MODEL": Row("host", "optimize toy_cnn"),
    "optimize mobilenet_v3_small --dtype fp16": Row("host", "optimize toy_cnn --dtype fp16"),
    "optimize mobilenet_v3_small --dtype fp16 --dry-run": Row("host"),
    "optimize mobilenet_v3_small --dtype fp16 --target local --budget 10min": Row(
        "host", "optimize toy_cnn --dtype fp16 --target local --budget 10min"
    ),
    "optimize toy_cnn --target local": Row("host"),
    "optimize toy_cnn --dtype int8 --least-snr 48.5": Row("host"),
    "numerics MODEL": Row("host", "numerics toy_cnn"),
    "numerics toy_cnn": Row("host"),
    "numerics MODEL --dtype PRECISION": Row("host", "numerics toy_cnn --dtype int8"),
    "numerics MODEL --dtype 8da4w_channel": Row(
        "host", "numerics transformer_encoder --dtype 8da4w_channel"
    ),
    "numerics out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte": Row("host"),
    "numerics FILE.pte": Row("host", "numerics out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"),
    "analyze model.etdump --etrecord model.etrecord --program model.pte": Row("host"),
    "calibrate --peaks": Row("host"),
    "report RUN_DIR --peaks FILE.json": Row(
        "host", "report out_toy_cnn/runs/linux --peaks peaks.json"
    ),
    "bench MATRIX.json": Row("host", "bench matrix.json"),
    "models": Row("host"),
    "export decoder --dtype fp32 --outdir out": Row("host"),
    "export decoder --dtype 8da4w_channel": Row("host"),
    "profile decoder --generate 64 --prompt-length 16": Row("host"),
    "profile out/decoder_xnnpack_fp32.pte --generate 64 --prompt-tokens 11,42,7": Row("host"),
    'profile llm.pte --generate 64 --tokenizer tokenizer.json --prompt "Once upon a time"': Row(
        "host"
    ),
    "profile llm.pte --generate 128 --prompt-length 512": Row(
        "host", "profile llm.pte --generate 16 --prompt-length 64"
    ),
    "profile llm_8da4w_channel.pte --against llm_fp32.pte --generate 64 --prompt-tokens 11,42,7": Row(
        "host"
    ),
    "profile … --method prefill": Row("host", "profile llm.pte --method prefill"),
    "export-llm tiny_llama.yaml --dry-run": Row("host"),
    "export-llm CONFIG.yaml": Row("host", "export-llm tiny_llama.yaml --dry-run"),
    "export-llm CONFIG.yaml --dry-run": Row("host", "export-llm tiny_llama.yaml --dry-run"),
    "export-llm tiny_llama.yaml -o tiny_llama.pte": Row("host"),
    "profile tiny_llama.pte --generate 32 --prompt-tokens 11,42,7": Row("host"),
    "bench llm.json --full": Row("host"),
}
"""Run by `nox -s pages` with real models on this machine, in this order."""

EMULATOR: dict[str, Row] = {
    "emulator status": Row("emulator"),
    "profile toy_cnn --dtype fp16 --target emulator": Row("emulator"),
    "profile MODEL --target emulator": Row("emulator", "profile toy_cnn --target emulator"),
    "profile MODEL --dtype fp16 --target emulator": Row(
        "emulator", "profile toy_cnn --dtype fp16 --target emulator"
    ),
    "profile toy_cnn --target emulator --sme-vector-bits 128,256,512": Row("emulator"),
    "profile toy_cnn --target emulator --instructions --full": Row("emulator"),
    "profile out_MyModel/artifacts/MyModel_xnnpack_fp16.pte --target emulator": Row("emulator"),
    "history add out_MODEL/runs/emulator": Row("emulator", "history add out_toy_cnn/runs/emulator"),
    "history check --exact-work": Row("emulator"),
    "numerics mobilenet_v2 --dtype int8 --target emulator": Row(
        "emulator", "numerics toy_cnn --dtype int8 --target emulator"
    ),
    "numerics benchmarks/precision_zoo.py:Hf_mobilenet_v1 --target emulator": Row(
        "emulator", "numerics my_model.py:MyModel --target emulator"
    ),
    "optimize mobilenet_v3_small --dtype fp16 --target emulator": Row(
        "emulator", "optimize toy_cnn --dtype fp16 --target emulator"
    ),
    "optimize MODEL --target emulator --rewrite NAME": Row(
        "emulator", "optimize toy_cnn --target emulator --rewrite half_pointwise_weights"
    ),
}
"""The same where the emulator is set up."""

OTHERS: dict[str, Row] = {
    "emulator setup": Row("elsewhere", why=".ci/lane"),
    **dict.fromkeys(
        ("count-kernels -- PROGRAM", "count-kernels -- python infer.py"),
        Row("elsewhere", why="tests/integration/test_debugger.py"),
    ),
    **dict.fromkeys(
        ("profile toy_cnn --debugger lldb", "profile MODEL --debugger lldb"),
        Row("elsewhere", why="tests/integration/test_debugger.py"),
    ),
    "bench configs/examples/matrix_host.json": Row("elsewhere", why=".ci/lane"),
    "bench matrix.json --scheduler 10.0.0.1:8786": Row(
        "elsewhere", why="tests/integration/test_bench_cluster.py"
    ),
    "export timm:vit_tiny_patch16_224 --dtype fp32": Row(
        "parsed", why="timm is no package that etprof brings"
    ),
    "export my_llm.py:Chat --quantize 8da4w_channel --text story.txt --tokenizer tokenizer.json": Row(
        "parsed", why="needs a language model with a text that it predicts"
    ),
    **{
        name: Row("named")
        for name in (
            "analyze", "bench", "compare", "export", "export-llm", "history add", "import", "profile",
            "report", "run", "validate",
        )
    },
}  # fmt: skip
"""`named`: a sentence names the command without what it takes."""

ROWS = {**SIMULATED, **HOST, **EMULATOR, **OTHERS}
