"""Do recipes make the same delegated graphs in an environment of ExecuTorch and etprof alone?

    python benchmarks/fresh_recipes.py --python FRESH/bin/python [--found DIR] [--models LIST]

FRESH is an environment that `pip install .` made, as a user's (`nox -s recipes` makes one). Each model
is searched here, with the budget of one trial, or taken from DIR, as benchmarks/optimize_zoo.py
leaves it there; its `recipe.py` runs there, in an empty folder. The table has the SHA-256 of all
delegated graphs with their weights, of both programs, and says whether the files are equal as a
whole. The exit code is 1 when a graph differs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

from etprof.base.process import run_command
from etprof.export import upstream

MODELS = ("toy_cnn:fp16", "toy_cnn:int8", "transformer_encoder:fp16")
COLUMNS = ("model", "precision", "delegated graphs", "made by the recipe", "graphs", "whole file")
TIMEOUT_S = 3600


def main() -> int:
    """Prints the table; returns 1 when a recipe makes another graph, or none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, metavar="FRESH/bin/python")
    parser.add_argument("--found", type=Path, metavar="DIR", help="of benchmarks/optimize_zoo.py")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    different = 0
    with tempfile.TemporaryDirectory() as temporary:
        for number, subject in enumerate(arguments.models):
            model, precision = subject.split(":")
            folder = _find(model, precision, arguments.found or Path(temporary))
            place = Path(temporary) / str(number)
            place.mkdir()
            again = place / "again.pte"
            # Nothing of this environment is on its path.
            recipe, python = (folder / "recipe.py").resolve(), arguments.python.absolute()
            _run([str(python), "-I", str(recipe), str(again)], place)
            programs = [each.read_bytes() for each in (folder / "optimized.pte", again)]
            graphs = [hash_graphs(each) for each in programs]
            is_same = graphs[0] == graphs[1]
            different += not is_same
            cells = (
                model, precision, graphs[0][:16], graphs[1][:16],
                "equal" if is_same else "DIFFERENT",
                "equal" if programs[0] == programs[1] else "different",
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
    return 1 if different else 0


def _find(model: str, precision: str, folder: Path) -> Path:
    """Returns the folder of the model's search, made here unless it is there."""
    found = folder / f"{model}_{precision}"
    if not (found / "recipe.py").exists():
        words = ["optimize", model, "--dtype", precision, "--budget", "1s", "--outdir", str(found)]
        _run([sys.executable, "-m", "etprof", *words], folder)
    return found


def _run(words: list[str], folder: Path) -> None:
    """Runs a command; ends the process with what it said when it fails."""
    done = run_command(words, timeout_s=TIMEOUT_S, folder=folder)
    if done.exit_code != 0:
        sys.exit(f"{' '.join(words)} ended with {done.exit_code}:\n{done.stderr}")


def hash_graphs(program: bytes) -> str:
    """Returns the SHA-256 of all delegates' graphs and of the weights that they name."""
    file = upstream.deserialize_pte_binary(program)
    digest = hashlib.sha256()
    for each in file.program.backend_delegate_data:
        digest.update(bytes(each.data))
    for weights in () if file.named_data is None else file.named_data.buffers:
        digest.update(weights)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
