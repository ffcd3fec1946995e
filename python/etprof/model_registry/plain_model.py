"""Makes a model of a plain `torch.nn.Module` and of inputs that are given, or that its first layer tells."""

from __future__ import annotations

import copy
import inspect
import itertools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from etprof.base.errors import ExportError, UsageError, first_line
from etprof.base.text import command_line
from etprof.base.units import count_of
from etprof.model_registry.eager_model import EagerModelBase, Inputs
from etprof.model_registry.input_spec import ANY_INTEGER, make_inputs, parse_input
from etprof.model_registry.saved_program import SavedProgram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SIDES: Final = (224, 32, 28, 64, 96, 128, 256, 299, 384, 512)
"""Heights and widths that image networks take: ImageNet's, CIFAR's, MNIST's, then by frequency."""
_LENGTHS: Final = (16, 128, 1024, 16000)
"""Of sequences and signals; the last is a second of speech."""
_WHOLE_NUMBERS: Final = re.compile(
    "(?:^|_)(?:ids?|idx)(?:_|$)|token|index|indices|mask|length|label|position"
)
"""What arguments are called that take integers."""
_MOST_TRIALS: Final = 12
_MOST_AXES: Final = 4
"""Of an input whose axes are tried in another order: five have 24 orders."""


def is_plain(value: object) -> bool:
    """Whether `value` is a module, a class of one, or a function that may return one."""
    if isinstance(value, nn.Module) or inspect.isroutine(value):
        return True
    return inspect.isclass(value) and issubclass(value, nn.Module)


@dataclass
class PlainSource:
    """Creates the module that a file names; the same weights at every call after the same seed."""

    value: Any
    """A module, a class of one, or a function."""
    name: str
    """As the user named it, such as `net.py:Net`."""

    def get_eager_model(self) -> nn.Module:
        """Returns a module of its own; raises ExportError for what makes none."""
        if isinstance(self.value, nn.Module):
            # It is cast and rewritten in place, and the next export starts from it.
            return copy.deepcopy(self.value)
        needed = _required(self.value)
        if needed:
            raise ExportError(
                f"{self.name} needs {', '.join(needed)}: write a function that returns one, such as "
                f"`def make(): return {self.value.__name__}({needed[0]}=…)`, and name it: "
                f"{self.name.rpartition(':')[0] or self.name}:make"
            )
        module = self.value()
        if not isinstance(module, nn.Module):
            raise ExportError(
                f"{self.name}() returns a {type(module).__name__}, not a torch.nn.Module"
            )
        return module


def wrap(value: object, name: str) -> Callable[[], EagerModelBase]:
    """Returns what makes the model of a plain module; `name` is how it is named to etprof."""

    def make() -> EagerModelBase:
        return ModelWithInputs(PlainSource(value, name), (), name)

    return make


class ModelWithInputs(EagerModelBase):
    """A model whose inputs are those of the command line, or those that its first layer tells."""

    def __init__(self, inner: Any, texts: Sequence[str], name: str) -> None:  # noqa: ANN401 - anything with get_eager_model
        """Keeps what makes the module; nothing is created yet."""
        self._inner, self._name = inner, name
        self._specs = [parse_input(text) for text in texts]
        self._module: nn.Module | None = None
        self.assumption = ""
        """What was taken for inputs that nobody gave in full; shown to the user."""
        methods = getattr(type(inner), "get_methods", EagerModelBase.get_methods)
        if texts and methods is not EagerModelBase.get_methods:
            raise UsageError(
                f"{name} has several methods, each with inputs of its own; leave out --input"
            )
        self.requirements = getattr(inner, "requirements", ())

    @property
    def inner(self) -> Any:  # noqa: ANN401 - as above
        """What makes the module."""
        return self._inner

    def get_eager_model(self) -> nn.Module:
        """Returns the module."""
        self._module = self._inner.get_eager_model()
        return self._module

    def get_example_inputs(self) -> Inputs:
        """Returns the inputs without a name; raises UsageError where they cannot be told."""
        return self._inputs()[0]

    def get_example_kwarg_inputs(self) -> Mapping[str, Any]:
        """Returns the inputs with a name."""
        return self._by_name

    def get_dynamic_shapes(self) -> Any:  # noqa: ANN401 - torch.export's own nested form
        """Returns those of the model that has some."""
        return getattr(self._inner, "get_dynamic_shapes", lambda: None)()

    def get_constants(self) -> Mapping[str, int]:
        """Returns those of the model that has some."""
        return dict(getattr(self._inner, "get_constants", dict)())

    def _inputs(self) -> tuple[Inputs, Mapping[str, Any]]:
        module = self.get_eager_model() if self._module is None else self._module
        if self._specs:
            positional, by_name = self._fitting(module)
        else:
            positional, by_name = self._tried(module)
        self._by_name: Mapping[str, Any] = by_name
        return positional, by_name

    def _fitting(self, module: nn.Module) -> tuple[Inputs, Mapping[str, Any]]:
        """Draws integers below the size of a table of the model: the largest that it takes."""
        limits = [*sorted(_table_sizes(module), reverse=True), ANY_INTEGER]
        if not any(spec.is_integer for spec in self._specs):
            return make_inputs(self._specs, ANY_INTEGER)
        for limit in limits[:_MOST_TRIALS]:
            made = make_inputs(self._specs, limit)
            if len(limits) == 1 or _problem(module, *made) is None:
                self.assumption = f"integers of the inputs were drawn from 0 to {limit - 1}"
                return made
        return made

    def _tried(self, module: nn.Module) -> tuple[Inputs, Mapping[str, Any]]:
        """Returns the first inputs that the module takes, of those that its first layer tells."""
        wanted = _arguments(module)
        path, guesses = _guess(module)
        if len(wanted) != 1 or not guesses:
            raise self._refusal(module, wanted, guesses)
        limits = [*_table_sizes(module), ANY_INTEGER]
        for text in guesses[:_MOST_TRIALS]:
            made = make_inputs([parse_input(text)], limits[0])
            if _problem(module, *made) is None:
                layer = type(module.get_submodule(path)).__name__
                where = f"its first layer ({layer}{f' {path}' if path else ''})"
                self.assumption = f"no input was given: {text} fits {where}; --input sets another"
                return made
        raise self._refusal(module, wanted, guesses)

    def _refusal(
        self, module: nn.Module, wanted: Sequence[str], guesses: Sequence[str]
    ) -> UsageError:
        """Returns the error that shows the whole command, with a shape for each argument."""
        texts = _shapes_to_show(wanted or ["x"], guesses)
        flags = [word for text in texts for word in ("--input", text)]
        command = command_line("profile", self._name, *flags)
        takes = f"{type(module).__name__}.forward takes ({', '.join(wanted)})"
        return UsageError(
            f"{takes}, and no input is given; give the shape of each, as in `{command}`"
        )


def _required(call: Callable[..., object]) -> list[str]:
    """Returns the names of the arguments without which a class or function cannot be called."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        # A class or function of C has no signature that Python sees.
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind not in variable
    ]


def _arguments(module: nn.Module) -> list[str]:
    """Returns what `forward` has to be given."""
    return _required(module.forward)


def _most_inputs(module: nn.Module) -> int | None:
    """Returns how many inputs `forward` takes at most; None without a limit."""
    parameters = inspect.signature(module.forward).parameters.values()
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in open_ended for parameter in parameters):
        return None
    return len(parameters)


def _table_sizes(module: nn.Module) -> list[int]:
    """Returns the rows of each table of embeddings, in the module's order, each size once."""
    tables = (
        layer for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    )
    return list(dict.fromkeys(layer.num_embeddings for layer in tables))


def _guess(module: nn.Module) -> tuple[str, list[str]]:
    """Returns the path of the first layer with weights, and shapes that it may take, likeliest first."""
    for path, layer in module.named_modules():
        shapes = list(_shapes_for(layer))
        if shapes:
            return path, shapes
        if not list(layer.children()) and any(True for _ in layer.parameters()):
            # A layer that tells nothing stands before those that might.
            break
    return "", []


def _shapes_for(layer: nn.Module) -> Iterator[str]:
    if isinstance(layer, nn.Conv2d):
        yield from (f"1x{layer.in_channels}x{side}x{side}" for side in _SIDES)
    elif isinstance(layer, nn.Conv1d):
        yield from (f"1x{layer.in_channels}x{length}" for length in _LENGTHS)
    elif isinstance(layer, nn.Linear):
        yield from (f"1x{layer.in_features}", f"1x16x{layer.in_features}")
    elif isinstance(layer, nn.Embedding):
        yield from (f"int64:1x{length}" for length in _LENGTHS)


def _shapes_to_show(arguments: Sequence[str], guesses: Sequence[str]) -> list[str]:
    """Returns a shape for each argument; the first layer's for the first whose name fits it.

    Where none does, integers are those of the last: a label or a speaker follows the signal.
    """
    shapes = [_shape_for(argument) for argument in arguments]
    if guesses:
        is_whole = guesses[0].startswith("int64:")
        fitting = (at for at, shape in enumerate(shapes) if shape.startswith("int64:") == is_whole)
        shapes[next(fitting, len(shapes) - 1 if is_whole else 0)] = guesses[0]
    return shapes


def _shape_for(argument: str) -> str:
    """Returns a shape to show, for an argument of which only the name tells something."""
    is_whole = _WHOLE_NUMBERS.search(argument.lower()) is not None
    return "int64:1x17" if is_whole else "1x3x224x224"


def describe_fitting(
    model: str, module: nn.Module, texts: Sequence[str], examples: Sequence[object] = ()
) -> str:
    """Says which inputs a model takes in place of `texts`, as the end of a sentence; empty where unknown.

    A model with `examples` takes what is like them, a saved program what it was saved with. A module
    is tried with the other kind of numbers, and with what its first layer tells.
    """
    if model.endswith(".pt2"):
        positional, by_name = SavedProgram(Path(model)).examples()
        saved = [_spec_of(value) for value in positional]
        saved += [f"{name}={_spec_of(value)}" for name, value in by_name.items()]
        return f"; {model} was saved with {_as_flags(saved)}"
    if examples:
        return f"; it takes {_as_flags([_spec_of(value) for value in examples])}"
    wanted = _arguments(module)
    if len(texts) < len(wanted):
        return f"; forward takes ({', '.join(wanted)}): give an --input for each"
    limit = _most_inputs(module)
    if limit is not None and len(texts) > limit:
        return (
            f"; forward takes {count_of(limit, 'input')}, and {len(texts)} were given: "
            f"leave out {len(texts) - limit} --input"
        )
    fitting = next((inputs for inputs in _others(module, texts) if _fits(module, inputs)), None)
    if fitting is not None:
        return f"; it takes, for example, {_as_flags(fitting)}"
    return f"; forward takes ({', '.join(wanted)}), in this order" if len(wanted) > 1 else ""


def _as_flags(texts: Sequence[str]) -> str:
    return shlex.join([argument for text in texts for argument in ("--input", text)])


def _spec_of(value: object) -> str:
    """Returns a tensor's type and shape as `--input` takes them."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    shape = "x".join(map(str, value.shape)) or "[]"
    dtype = str(value.dtype).removeprefix("torch.")
    return shape if dtype == "float32" else f"{dtype}:{shape}"


def _others(module: nn.Module, texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields inputs that may be meant: in another order, of the other kind, of the first layer's shape."""
    if all(parse_input(text).name is None for text in texts):
        yield from itertools.islice(itertools.permutations(texts), 1, _MOST_TRIALS)
    choices = [
        (text, alternative) if (alternative := _of_other_kind(text)) else (text,) for text in texts
    ]
    yield from itertools.islice(itertools.product(*choices), 1, _MOST_TRIALS)
    if len(texts) == 1:
        # What somebody measures has that size; axes in another order are the likelier mistake.
        yield from ([text] for text in _of_other_order(texts[0]))
        yield from ([guess] for guess in _guess(module)[1][:_MOST_TRIALS])


def _of_other_kind(text: str) -> str:
    """Returns an input of whole numbers in place of fractions and the other way round; else nothing."""
    spec = parse_input(text)
    if spec.file is not None:
        return ""
    shape = "x".join(map(str, spec.shape)) or "[]"
    name = "" if spec.name is None else f"{spec.name}="
    return f"{name}{shape}" if spec.is_integer else f"{name}int64:{shape}"


def _of_other_order(text: str) -> Iterator[str]:
    """Yields an input with its axes in another order, but for the first, which is the batch."""
    spec = parse_input(text)
    if spec.file is None and 2 < len(spec.shape) <= _MOST_AXES:
        for axes in dict.fromkeys(itertools.permutations(spec.shape[1:])):
            if axes != tuple(spec.shape[1:]):
                shape = "x".join(map(str, (spec.shape[0], *axes)))
                yield text.replace("x".join(map(str, spec.shape)), shape)


def _fits(module: nn.Module, texts: Sequence[str]) -> bool:
    specs = [parse_input(text) for text in texts]
    return any(
        _problem(module, *make_inputs(specs, limit)) is None
        for limit in [*_table_sizes(module), ANY_INTEGER]
    )


def _problem(module: nn.Module, inputs: Inputs, by_name: Mapping[str, Any]) -> str | None:
    """Tries a copy of the module: what it keeps between calls is not to know of it."""
    trial = copy.deepcopy(module).eval()
    with torch.no_grad():
        try:
            trial(*inputs, **by_name)
        # The model's code may raise anything; the caller has other inputs, or says what to do.
        except Exception as error:  # noqa: BLE001
            return first_line(error)
    return None
