"""Holds what a program makes of a text against the float32 model: perplexity, and tokens alike.

Perplexity as in Jelinek et al., J. Acoust. Soc. Am. 62 (1977): e to the mean negative log-probability.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from etprof.base.atomic import scratch_folder
from etprof.base.errors import EtprofError, ExportError, UsageError, first_line
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded, read_input
from etprof.base.json_input import parse_json
from etprof.base.process import run_command
from etprof.base.text import clean
from etprof.base.units import format_value
from etprof.export import tensors
from etprof.export.quality import reading
from etprof.export.state import unchanged_buffers
from etprof.run.accuracy import LayerLoss, TextQuality, judge_text
from etprof.run.generation import parse_ids
from etprof.run.tokenizer import encode_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.export.quality.reading import Scorer
    from etprof.export.request import Quantization
    from etprof.model_registry.eager_model import ExportMethod

READ, PROMPT, NEW = 128, 32, 32
"""Tokens that are scored, of a prompt, and new ones after it; fewer where the cache is smaller."""
_LEAST_CACHE: Final = 16
_METHODS: Final = ("decode", "forward")
_TIMEOUT_S: Final = 1800.0
_MOST_TEXT: Final = 2**20
_BYTES: Final = 256
_BLAMED, _NAMED, _BLAME_READS = 16, 3, 48
"""Layers that are tried, that are named, and tokens that each reads."""
OWN_TEXT: Final = (
    "A compiler reads a program and writes another one that a machine can run. It does not know "
    "what the program is for, but it knows what each line asks. When two lines ask for the same "
    "thing, one answer is enough. When a line asks for nothing, it can go. The machine is fast, but "
    "it waits for its memory, and so the order of the lines decides how long the work takes."
)
"""Read where nothing else is given."""


@dataclass(frozen=True)
class Text:
    """What is read, as ids."""

    ids: tuple[int, ...]
    name: str


def load_text(file: Path | None, tokenizer: Path | None) -> Text:
    """Returns a text as a model's ids: by its tokenizer, else bytes, or ids that a file lists.

    Raises UsageError for one that is too short, InputFileError for what cannot be read.
    """
    data = OWN_TEXT.encode() if file is None else _read(file)
    name = "etprof's own" if file is None else file.name
    name = f"{clean(name)} (SHA-256 {hashlib.sha256(data).hexdigest()[:12]}"
    text = data.decode("utf-8", "replace")
    if tokenizer is not None:
        ids, encoding = encode_prompt(tokenizer, text), f"by {clean(tokenizer.name)}"
    elif file is not None and (listed := parse_ids(text)) is not None:
        ids, encoding = listed, "as ids"
    else:
        ids, encoding = tuple(data), "as bytes"
    if len(ids) < _LEAST_CACHE:
        raise UsageError(f"--text has {len(ids)} tokens; give one of at least {_LEAST_CACHE}")
    return Text(tuple(ids), f"{name}, {encoding})")


def _read(file: Path) -> bytes:
    way_out = "give a text, or token ids with commas between them"
    return read_input(file, most_bytes=_MOST_TEXT, way_out=way_out, error=UsageError)


@dataclass(frozen=True)
class _ReferenceText:
    """What the float32 model makes of the text."""

    log_probabilities: torch.Tensor
    tokens: list[int]


class TextReader:
    """Reads a text with the float32 model, then with the program that was made of it."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._step_method: tuple[str, ExportMethod] | None = None
        self._expected: _ReferenceText | None = None
        self._ids: tuple[int, ...] = ()
        self._prompt = self._new = 0
        self.problem = ""
        """Why a language model's quality is not known; empty where it is, or it is none."""

    def read_eager(self, methods: Mapping[str, ExportMethod], constants: Mapping[str, int]) -> None:
        """Reads with the module itself, which is in float32 now and is left as it is."""
        name = find_step(methods)
        if name is None:
            return
        context_length = (
            constants.get("get_max_context_len") or constants.get("get_max_seq_len") or READ
        )
        count = min(READ, len(self._text.ids) - 1, context_length)
        self._ids = self._text.ids[: count + 1]
        self._prompt, self._new = min(PROMPT, count // 2), min(NEW, count - count // 2)
        method = methods[name]
        try:
            with _stepping(method) as scorer:
                scores = reading.score_text(scorer, self._ids[:-1])
            self._check_vocabulary(scores.shape[1])
            with _stepping(method) as scorer:
                tokens = reading.generate(scorer, self._ids[: self._prompt], self._new)
        except EtprofError as error:
            self.problem = str(error)
        # A model may raise anything for ids, positions or lengths that it does not have.
        except Exception as error:  # noqa: BLE001
            self.problem = (
                f"the model does not read the ids {min(self._ids)} to {max(self._ids)} of {self._text.name}: "
                f"{first_line(error)}; give another with --text, or the model's --tokenizer"
            )
        else:
            self._step_method = (name, method)
            self._expected = _ReferenceText(torch.log_softmax(scores.double(), -1), tokens)

    def _check_vocabulary(self, vocabulary: int) -> None:
        largest = max(self._ids)
        if largest >= vocabulary:
            raise ExportError(
                f"the text has the id {largest} and the model {vocabulary}; give another with --text, or "
                "the model's --tokenizer"
            )

    def read_program(self, pte: Path, content: str, precision: str) -> TextQuality | None:
        """Returns what the program makes of the text; None where it does not read, with `problem`."""
        if self._step_method is None or self._expected is None:
            return None
        name, method = self._step_method
        request = {
            "method": name,
            "ids": self._ids[:-1],
            "prompt": self._prompt,
            "new": self._new,
            "shapes": [list(tensor.shape) for tensor in _inputs(method)],
            "dtypes": [tensors.dtype_name(tensor) for tensor in _inputs(method)],
        }
        try:
            scores, tokens = _run(pte, request)
        except EtprofError as error:
            self.problem = first_line(error)
            return None
        return self._judge(scores, tokens, content, precision)

    def _judge(
        self, scores: torch.Tensor, tokens: list[int], content: str, precision: str
    ) -> TextQuality:
        expected = self._expected
        if expected is None:
            raise AssertionError("the float32 model reads first")
        log_probabilities = torch.log_softmax(scores.double(), -1)
        program_perplexity, eager = (
            perplexity(distribution, self._ids)
            for distribution in (log_probabilities, expected.log_probabilities)
        )
        differing = [a != b for a, b in zip(tokens, expected.tokens, strict=True)]
        divergence = _divergence(expected.log_probabilities, log_probabilities)
        best = [
            distribution.argmax(1)
            for distribution in (log_probabilities, expected.log_probabilities)
        ]
        return TextQuality(
            program=content,
            text=self._text.name,
            tokens=len(self._ids) - 1,
            vocabulary=scores.shape[1],
            perplexity=program_perplexity,
            eager_perplexity=eager,
            same_top1=float((best[0] == best[1]).double().mean()),
            divergence_nats=divergence,
            prompt_tokens=self._prompt,
            new_tokens=self._new,
            same_tokens=differing.index(True) if True in differing else self._new,
            verdict=judge_text(precision, program_perplexity, eager, scores.shape[1]),
        )

    def blame(
        self, quality: TextQuality, methods: Mapping[str, ExportMethod], scheme: Quantization
    ) -> TextQuality:
        """Adds the layers whose weights, rounded alone in the float32 model, cost most.

        `methods` are the model's, in float32 and not converted.
        """
        name = find_step(methods)
        if name is None or self._expected is None:
            return quality
        method, ids = methods[name], self._ids[: min(_BLAME_READS, len(self._ids) - 1)]
        expected = self._expected.log_probabilities[: len(ids)]
        losses = []
        for path, layer in _worst_layers(method.module, scheme):
            weights = layer.weight.data
            layer.weight.data = round_weights(weights, scheme)
            with _stepping(method) as scorer:
                log_probabilities = torch.log_softmax(reading.score_text(scorer, ids).double(), -1)
            layer.weight.data = weights
            cost = _divergence(expected, log_probabilities)
            losses.append(LayerLoss(module=path, divergence_nats=cost or 0.0))
        losses.sort(key=lambda loss: -loss.divergence_nats)
        named = tuple(losses[:_NAMED])
        summary = ", ".join(
            f"{loss.module} {format_value('nats', loss.divergence_nats)}" for loss in named
        )
        if not summary:
            return quality
        reason = (
            f"{quality.verdict.reason}; rounded alone, the weights of these layers move its probabilities "
            f"most: {summary} (--scope {named[0].module}=fp32 leaves one out)"
        )
        return quality.model_copy(
            update={
                "layers": named,
                "verdict": quality.verdict.model_copy(update={"reason": clean(reason, 1000)}),
            }
        )


def find_step(methods: Mapping[str, ExportMethod]) -> str | None:
    """Returns the method that takes one token and its position; None for what is no language model."""
    for name in _METHODS:
        method = methods.get(name)
        inputs = [] if method is None or method.kwarg_inputs else _inputs(method)
        is_whole = all(tensor.dtype in {torch.int32, torch.int64} for tensor in inputs)
        if len(inputs) == 2 and is_whole and all(tensor.numel() == 1 for tensor in inputs):
            return name
    return None


def _inputs(method: ExportMethod) -> list[Any]:
    return [value for value in tensors.flatten(method.inputs) if isinstance(value, torch.Tensor)]


@contextmanager
def _stepping(method: ExportMethod) -> Iterator[Scorer]:
    """Gives what steps through the eager model, whose cache is as before afterwards."""
    module, likes = method.module, _inputs(method)

    def score(token: int, position: int) -> torch.Tensor:
        values = zip(likes, (token, position), strict=True)
        inputs = [torch.full_like(like, value) for like, value in values]
        return reading.last_scores(tensors.flatten(module(*inputs))[0])

    threads = torch.get_num_threads()
    with unchanged_buffers(module):
        # Several wait for each other at every small operator.
        torch.set_num_threads(1)
        try:
            yield score
        finally:
            torch.set_num_threads(threads)


def _run(pte: Path, request: Mapping[str, Any]) -> tuple[torch.Tensor, list[int]]:
    """Returns the program's scores of [tokens, vocabulary], and what it generated."""
    with scratch_folder("text") as scratch:
        request_path, result = Path(scratch) / "asked.json", Path(scratch) / "scores.bin"
        request_path.write_text(json.dumps(request), encoding="utf-8")
        # -P: the current folder, which may hold a stranger's json.py, is no place for modules.
        command: list[str | Path] = [
            sys.executable,
            "-P",
            "-m",
            reading.__name__,
            pte,
            request_path,
            result,
        ]
        done = run_command(command, timeout_s=_TIMEOUT_S)
        lines = done.stdout.splitlines()
        if done.exit_code != 0 or not lines:
            messages = [
                splitline
                for splitline in done.stderr.splitlines()
                if "cpuinfo_utils" not in splitline
            ]
            detail = clean(messages[-1], 300) if messages else "it says nothing"
            if done.exit_code < 0:
                detail = f"it was ended by signal {-done.exit_code}"
            raise ExportError(f"ExecuTorch's Python runtime does not read a text with it: {detail}")
        reply = parse_json(lines[-1])
        content = bytearray(read_bounded(result, MOST_PROGRAM_BYTES))
    scores = torch.frombuffer(content, dtype=torch.float32).reshape(-1, reply["vocabulary"])
    return scores, reply["tokens"]


def perplexity(log_probabilities: torch.Tensor, ids: Sequence[int]) -> float | None:
    """Returns e to the mean negative log-probability of the ids after the first; None if not finite."""
    following = torch.tensor(ids[1 : len(log_probabilities) + 1])
    mean = float(-log_probabilities.gather(1, following[:, None]).mean())
    # Beyond this e to it is no number of 64 bits.
    return math.exp(mean) if mean < 700 else None


def _divergence(expected: torch.Tensor, actual: torch.Tensor) -> float | None:
    """Returns the mean Kullback-Leibler divergence of `actual` from `expected`, in nats."""
    probabilities = expected.exp()
    mean = float(
        torch.where(probabilities > 0, probabilities * (expected - actual), 0.0).sum(1).mean()
    )
    return max(mean, 0.0) if math.isfinite(mean) else None


def _worst_layers(module: nn.Module, scheme: Quantization) -> Iterable[tuple[str, nn.Linear]]:
    """Returns the linear layers that rounding changes most, by the noise of their weights."""
    layers = [
        (path, layer) for path, layer in module.named_modules() if isinstance(layer, nn.Linear)
    ]

    def noise(named_layer: tuple[str, nn.Linear]) -> float:
        weights = named_layer[1].weight.data.float()
        power = float(weights.square().mean())
        error = float((round_weights(weights, scheme) - weights).square().mean())
        return error / power if power else 0.0

    return sorted(layers, key=noise, reverse=True)[:_BLAMED]


def round_weights(weights: torch.Tensor, scheme: Quantization) -> torch.Tensor:
    """Rounds [rows, columns] to the scheme's bits, symmetrically by row, tensor or block."""
    rows, columns = weights.shape
    blocks = scheme.block_size if scheme.weight_granularity == "per_block" else columns
    if scheme.weight_granularity == "per_tensor" or not blocks or columns % blocks:
        grouped = weights.reshape(1, -1) if scheme.weight_granularity == "per_tensor" else weights
    else:
        grouped = weights.reshape(-1, blocks)
    steps = 2 ** (scheme.weight_bits - 1)
    scale = grouped.abs().amax(1, keepdim=True).clamp_min(1e-12) / (steps - 0.5)
    rounded: torch.Tensor = (grouped / scale).round().clamp(-steps, steps - 1) * scale
    return rounded.reshape(rows, columns).to(weights.dtype)
