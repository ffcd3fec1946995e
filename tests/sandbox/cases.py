"""The commands that are watched: each subcommand, on each format that it accepts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from tests.hostile.seeds import make_seeds
from tests.hostile.stand_ins import install

MODEL: Final = """
import torch
from etprof.model_registry.eager_model import EagerModelBase

class Net(EagerModelBase):
    def get_eager_model(self):
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()

    def get_example_inputs(self):
        return (torch.ones(1, 8),)
"""
LLM: Final = """
base:
  model_class: stories110m
  params: params.json
model: {dtype_override: fp32}
backend: {xnnpack: {enabled: true}}
"""
TRAPS: Final = ("json.py", "torch.py", "sitecustomize.py", "usercustomize.py", "pyproject.toml")
"""Files beside the named ones, which nobody is to open."""


@dataclass(frozen=True)
class Case:
    """One command line in a copy of a tree of files."""

    tree: str
    line: str
    codes: frozenset[int] = frozenset({0})
    beside: tuple[str, ...] = ()
    """What the named files name in their turn, and what stands beside them by etprof's own names."""

    adb_port: int | None = None
    """Of a server of adb, which the command starts as a daemon and the lane ends again."""

    programs: tuple[str, ...] = ()
    """Of the system, which the command line asks for."""

    @property
    def command(self) -> str:
        """The subcommand."""
        return self.line.split()[0]

    def named(self, folder: Path) -> tuple[Path, ...]:
        """The files and folders of the command line that were there before."""
        words = [part for word in shlex.split(self.line)[1:] for part in (word, *word.split(":"))]
        paths = (Path(os.path.normpath(folder / name)) for name in (*words, *self.beside))
        return tuple(path for path in paths if path.exists() and path != folder)


_RUN: Final = ("known.pte", "reference_0.bin", "run/manifest.json", "run/metrics.json")
_TOY: Final = "toy_cnn_xnnpack_fp16.pte"
_PROGRAM: Final = tuple(f"{_TOY}{end}" for end in (".json", ".delegation.json", ".data"))
_QUICK: Final = "--blocks 1 --min-seconds 0.01 --out out --no-wait"


def _beside(line: str) -> tuple[str, ...]:
    """What a command in the program's tree may open beside what it names."""
    # A config names its program, and a YAML its parameters; Python files beside a model are hashed, as it may import them.
    named = {
        "config.json": (_TOY,),
        "net.py": tuple(n for n in TRAPS if n.endswith(".py")),
        "llm.yaml": ("params.json",),
    }
    return (*_PROGRAM, *(name for word in named if word in line for name in named[word]))


CASES: Final = (
    *(
        Case("run", line, frozenset(codes), _RUN)
        for line, *codes in (
            ("analyze run", 0, 6),
            ("analyze run/android_off/known_android_off_t1.etdump --json", 0),
            ("compare run:android_off run:android_sme2", 0, 6),
            (
                "report run --format chrome,csv,folded,html,hud,json,md,model-explorer,parquet,perfetto --out out",
                0,
                2,
                3,
                6,
            ),
            ("report run --thresholds thresholds.json --format md --out out", 0, 6),
            ("validate run", 0, 1, 4, 6),
            ("history add run --store empty.sqlite", 0),
            ("run run.json --analysis-only --output-root run", 0, 2, 4, 6),
            ("run --from-manifest run --dry-run", 0, 2),
        )
    ),
    *(
        # A history says where its runs are.
        Case("history", line, frozenset(codes), tuple(f"../trees/history/r{n}" for n in range(5)))
        for line, *codes in (
            ("history list --store history.sqlite", 0),
            ("history check --baseline window:2 --store history.sqlite", 0, 1, 9),
            ("history export out.parquet --store history.sqlite", 0),
            ("history import export.json --store empty.sqlite", 0),
            ("history import export.parquet --store empty.sqlite", 0),
            ("history import export.hud --store empty.sqlite", 4),
            ("dashboard --export site --store history.sqlite", 0),
        )
    ),
    *(
        Case("foreign", f"import {name} --out run", frozenset({0, 2}))
        for name in ("model.etdump runner.log", "bench.json", "ios.log")
    ),
    *(
        Case("measure", line, frozenset(codes), ("m.pte", "m.pte.json", *beside))
        for line, codes, *beside in (
            ("config check config.json", {0, 2, 4}),
            ("run generation.json --dry-run", {0, 2, 4}, "prompt.txt", "tokenizer.json"),
            ("bench matrix.json --dry-run", {0, 2}),
            (f"profile m.pte {_QUICK}", {4, 5}, "m.pte.delegation.json", "reference_0.bin"),
        )
    ),
    *(
        Case("program", line, frozenset(codes), _beside(line))
        for line, *codes in (
            (f"profile {_TOY} {_QUICK}", 0),
            (f"profile {_TOY} {_QUICK} --inputs x.npy", 0),
            (f"profile {_TOY} {_QUICK} --etrecord {_TOY}.etrecord", 0),
            (f"profile {_TOY} --against {_TOY} {_QUICK}", 0, 2),
            ("run config.json --no-wait", 0),
            (f"calibrate {_TOY} --blocks 2 --pairs 2 --out out --no-wait", 0),
            (f"numerics {_TOY} --no-wait", 0, 2, 4, 6),
            ("export toy_cnn --dtype fp16 --outdir out", 0),
            ("export net.py:Net --outdir out", 0),
            ("export net.py:Net --weights net.pt --outdir out", 0),
            ("export net.py:Net --weights pickled.pt --outdir out", 4),
            ("export hf:folder --outdir out", 4, 6),
            ("optimize net.py:Net --outdir out", 0, 6),
            ("export-llm llm.yaml --dry-run", 0),
            ("export-llm loading.yaml --dry-run", 2, 4),
            ("export-llm loading.yaml -o out.pte", 2, 4),
            ("models", 0),
            ("doctor", 0, 3),
            ("emulator status", 0, 3),
            ("completion bash", 0),
            ("docs", 0),
            ("config schema", 0),
        )
    ),
    # What strace watches cannot be debugged, so the debugger ends before the program begins; gdb asks
    # iconv which character sets there are.
    Case(
        "program",
        "count-kernels --debugger gdb -- true",
        frozenset({2, 3}),
        programs=("gdb", "iconv"),
    ),
    Case("program", "device list", frozenset({0, 3, 5}), adb_port=5938),
)


def make_trees(folder: Path, etprof: list[str]) -> None:
    """Makes the trees that cases have copies of; `etprof` exports the program."""
    # Of this process alone: what is watched measures with the real runner.
    install()
    make_seeds(folder, with_torch=False)
    program = folder / "program"
    program.mkdir()
    subprocess.run([*etprof, "export", "toy_cnn", "--outdir", str(program)], check=True)
    description = json.loads((program / f"{_TOY}.json").read_text())
    (tensor,) = description["methods"]["forward"]["inputs"]
    np.save(program / "x.npy", np.zeros(tensor["shape"], tensor["dtype"]))
    config = {
        "model": _TOY, "output_root": "out",
        "experiments": [{"name": "one", "sme": "off"}],
        "measurement": {"blocks": 1, "min_seconds": 0.01, "etdump_runs": 2},
    }  # fmt: skip
    (program / "config.json").write_text(json.dumps(config))
    (program / "net.py").write_text(MODEL)
    torch.save(torch.nn.Sequential(torch.nn.Linear(8, 8)).state_dict(), program / "net.pt")
    torch.save({"a": Payload()}, program / "pickled.pt")
    (program / "llm.yaml").write_text(LLM)
    shutil.copy(shutil.which("true") or "/bin/true", program / "weights_map.bin")
    (program / "loading.yaml").write_text(f"{LLM}export: {{so_library: weights_map.bin}}\n")
    (program / "params.json").write_text(json.dumps({"dim": 16, "n_layers": 1, "n_heads": 2}))
    (program / "folder").mkdir()
    coded = {"model_type": "mine", "auto_map": {"AutoModel": "mine.Net"}}
    (program / "folder/config.json").write_text(json.dumps(coded))
    (program / "folder/mine.py").write_text("raise SystemExit(99)")


class Payload:
    """What a pickle makes run when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo read",)


def copy_tree(trees: Path, case: Case, folder: Path) -> None:
    """Puts a case's files into `folder`, and traps beside them."""
    shutil.copytree(trees / case.tree, folder, symlinks=True)
    for name in TRAPS:
        (folder / name).write_text("raise SystemExit(99)")
    for name in ("home", "tmp", "locks"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "fsmonitor").write_text("#!/bin/sh\nexit 99\n")
    (folder / "fsmonitor").chmod(0o755)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "json.py"],
        ["commit", "-q", "-m", "one"],
        ["config", "core.fsmonitor", "./fsmonitor"],
        ["config", "filter.planted.clean", "./fsmonitor"],
        ["config", "core.attributesFile", "attributes"],
    ):
        subprocess.run([*git, *words], check=True)
    (folder / "attributes").write_text("* filter=planted\n")
    os.utime(folder / "json.py", (0, 0))
