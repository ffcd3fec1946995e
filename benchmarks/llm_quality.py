"""Trains two small language models, exports them in several precisions, and says what each costs.

    python benchmarks/llm_quality.py [--text FILE] [--precisions LIST] [--models LIST] [--steps N]
                                     [--outdir DIR] [--json FILE]

The models are the zoo's `decoder` and the LLaMA of ExecuTorch's own examples; both read bytes. They
are trained for some steps on the first four fifths of the text, for with random weights every
perplexity is the number of tokens. The rest is read by each exported program, token by token, in
ExecuTorch's runtime on this host. Without --text a grammar of this script makes one. A row of the
Markdown table has the perplexity, that ÷ eager float32's, on how many places the most likely token is
eager's, the mean Kullback-Leibler divergence from eager's probabilities, and how many of 64 tokens
that are generated greedily are eager's before the first other one. `8da4w_channel` has the same
integers as `8da4w`. A perplexity is of this model and text: it says nothing of others.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from llm_networks import NETWORKS, train
from torch import nn

from etprof.base.atomic import write_json
from etprof.base.records import read_record
from etprof.base.units import format_share, format_size, format_value
from etprof.base.upstream_noise import quiet_upstream
from etprof.export.exporter import export_model
from etprof.export.model_loading import load_methods
from etprof.export.request import ExportOptions, ExportRequest
from etprof.run.delegation import DelegationReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.export.request import ExportedFiles

USUAL: Final = ("int8", "int8_dynamic", "8da4w_b32", "8da4w", "8da4w_channel")
READ, PROMPT, NEW = 192, 32, 64
"""Tokens of the text that are scored, of a prompt, and new ones after it."""
Scorer = Callable[[int, int], torch.Tensor]
"""From a token and its position to the scores of the next, of [vocabulary]."""


@dataclass(frozen=True)
class Quality:
    """How far one program is from eager float32 on the text."""

    model: str
    precision: str
    perplexity: float
    perplexity_ratio: float
    """÷ eager float32's."""
    same_top1: float
    divergence_nats: float
    """Mean Kullback-Leibler divergence of its probabilities from eager's."""
    same_tokens: int
    """Of NEW, before the first that differs."""
    sme2_macs_share: float | None
    """Of decode; predicted."""
    program_bytes: int | None


def make_text(seed: int = 0, sentences: int = 4000) -> bytes:
    """Returns sentences of a small grammar, with numbers that agree."""
    chooser = random.Random(seed)  # noqa: S311 - a text, no secret
    things = ("kernel", "tile", "token", "layer", "matrix", "vector", "cache", "model")
    acts = ("loads", "packs", "reads", "keeps", "doubles", "moves")
    words = ("small", "wide", "cold", "warm", "late", "plain")
    lines = []
    for _ in range(sentences):
        count, thing, other = chooser.randint(1, 9), chooser.choice(things), chooser.choice(things)
        act, word = chooser.choice(acts), chooser.choice(words)
        plural = "" if count == 1 else "s"
        lines.append(f"The {word} {thing} {act} {count} {other}{plural}, so it has {count}.")
    return "\n".join(lines).encode()


def score_text(scorer: Scorer, text: bytes) -> torch.Tensor:
    """Returns log-probabilities of [READ, vocabulary] after each of the first READ bytes."""
    scores = [scorer(text[place], place) for place in range(READ)]
    return torch.log_softmax(torch.stack(scores).double(), dim=-1)


def generate(scorer: Scorer, text: bytes) -> list[int]:
    """Returns the NEW tokens after the first PROMPT bytes, each the most likely one."""
    tokens = list(text[:PROMPT])
    for place in range(PROMPT + NEW - 1):
        best = int(scorer(tokens[place], place).argmax())
        if place >= PROMPT - 1:
            tokens.append(best)
    return tokens[PROMPT:]


def scorer_of_module(module: nn.Module) -> Scorer:
    """Steps through the eager model; its cache is its own."""

    def score(token: int, place: int) -> torch.Tensor:
        with torch.no_grad():
            scores: torch.Tensor = module(torch.tensor([[token]]), torch.tensor([place]))
        return scores.flatten()

    return score


def scorer_of_program(path: Path) -> Scorer:
    """Steps through the program's `decode` in ExecuTorch's own runtime."""
    with quiet_upstream():
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(path)
        method = program.load_method("decode")

    def score(token: int, place: int) -> torch.Tensor:
        given = [torch.tensor([[token]]), torch.tensor([place])]
        scores: torch.Tensor = method.execute(given)[0].flatten().clone()
        return scores

    return score


def perplexity(log_probabilities: torch.Tensor, text: bytes) -> float:
    """Returns e to the mean negative log-probability of the bytes that come next."""
    following = torch.tensor(list(text[1 : READ + 1]))
    return float(torch.exp(-log_probabilities.gather(1, following[:, None]).mean()))


def compare(  # noqa: PLR0913, PLR0917 - what a row is made of
    model: str,
    precision: str,
    scorer: Scorer,
    eager: tuple[torch.Tensor, list[int]],
    text: bytes,
    files: ExportedFiles | None = None,
) -> Quality:
    """Returns the row of one program, compared with eager's probabilities and tokens."""
    expected, tokens = eager
    found, generated = score_text(scorer, text), generate(scorer, text)
    differing = [a != b for a, b in zip(generated, tokens, strict=True)]
    summary = None
    if files is not None:
        report = read_record(DelegationReport, files.report, way_out="export again")
        summary = report.methods["decode"].summary
    own = perplexity(found, text)
    return Quality(
        model=model,
        precision=precision,
        perplexity=own,
        perplexity_ratio=own / perplexity(expected, text),
        same_top1=float((found.argmax(1) == expected.argmax(1)).double().mean()),
        divergence_nats=float((expected.exp() * (expected - found)).sum(1).mean()),
        same_tokens=differing.index(True) if True in differing else NEW,
        sme2_macs_share=summary.predicted_sme2_macs_share if summary else None,
        program_bytes=files.pte.stat().st_size if files else None,
    )


def measure(
    name: str, precisions: Sequence[str], text: bytes, steps: int, folder: Path
) -> list[Quality]:
    """Trains a model and holds its program in each precision against it."""
    model, weights = NETWORKS[name].model, folder / f"{name}.pth"
    read = text[len(text) * 4 // 5 :]
    torch.manual_seed(0)
    # Several wait for each other at every small operator, and sum in another order.
    torch.set_num_threads(1)
    torch.save(train(name, text[: len(text) * 4 // 5], steps), weights)
    eager = scorer_of_module(load_methods(model, weights)["decode"].module.eval())
    expected = score_text(eager, read), generate(eager, read)
    rows = [compare(name, "eager fp32", eager, expected, read)]
    for precision in precisions:
        request = ExportRequest(
            model,
            precision,
            out=folder / f"{name}_{precision}.pte",
            options=ExportOptions(weights=weights),
            allow_inaccurate=True,
        )
        files = export_model(request)
        row = compare(name, precision, scorer_of_program(files.pte), expected, read, files)
        print(_line(row), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def _line(row: Quality) -> str:
    share, size = row.sme2_macs_share, row.program_bytes
    cells = (
        row.model, row.precision, f"{row.perplexity:.3f}", f"{row.perplexity_ratio:.3f}",
        format_share(row.same_top1), format_value("nats", row.divergence_nats),
        f"{row.same_tokens} of {NEW}", "–" if share is None else format_share(share),
        "–" if size is None else format_size(size),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD: Final = (
    "| model | precision | perplexity | ÷ eager | same top-1 | divergence | same tokens | SME2 MACs "
    "(decode, predicted) | size |\n|" + "---|" * len(fields(Quality))
)


def main() -> int:
    """Prints the table; returns 1 when a program is worse than no model at all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="bytes to train on and to read")
    parser.add_argument("--precisions", type=lambda words: words.split(","), default=USUAL)
    parser.add_argument("--models", type=lambda words: words.split(","), default=tuple(NETWORKS))
    parser.add_argument("--steps", type=int, default=150, help="of training")
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--json", type=Path, help="write the rows there too")
    given = parser.parse_args()
    text = given.text.read_bytes() if given.text else make_text()
    if len(text) < 5 * (READ + 1):
        parser.error(
            f"--text {given.text} has fewer than {5 * (READ + 1)} bytes; give a longer one"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.outdir or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            row
            for name in given.models
            for row in measure(name, given.precisions, text, given.steps, folder)
        ]
    if given.json:
        write_json(given.json, {"schema_version": 1, "rows": [asdict(row) for row in rows]})
    print("\n".join((HEAD, *map(_line, rows))))
    return int(any(not row.perplexity < 256 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
