"""What a model must offer to be exported; `EagerModelBase` has the same methods as ExecuTorch's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

Inputs = tuple[Any, ...]
"""The positional arguments of `forward`: tensors, numbers, or nested tuples and lists of them."""


_FORM: Final = 'return a dict by name, such as {"forward": ExportMethod(module, inputs)}: `etprof docs own_model`'


@dataclass(frozen=True)
class ExportMethod:
    """One method of a program: a module and the inputs it is traced, checked and measured with."""

    module: torch.nn.Module
    inputs: Inputs
    kwarg_inputs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    """As `torch.export.export` takes it; None when every shape is fixed."""
    calibration: Sequence[Inputs] = ()
    """Further inputs that static quantisation observes; without any, `inputs` is the sample."""
    assumption: str = ""
    """What etprof took for inputs that nobody gave in full."""


class EagerModelBase(ABC):
    """A model in PyTorch with representative inputs; subclass it in `models/<name>/model.py`.

    Only the two abstract methods are needed. The exporter seeds PyTorch's random numbers before
    it calls any of them, so random weights and inputs are the same in every export.
    """

    requirements: Sequence[str] = ()
    """Packages on PyPI that the model needs beyond etprof's own, as pip takes them."""

    @abstractmethod
    def get_eager_model(self) -> torch.nn.Module:
        """Returns the model; the exporter puts it into evaluation mode."""

    @abstractmethod
    def get_example_inputs(self) -> Inputs:
        """Returns the positional inputs of one inference, as close to real ones as possible."""

    def get_example_kwarg_inputs(self) -> Mapping[str, Any]:
        """Returns the keyword inputs of one inference."""
        return {}

    def get_dynamic_shapes(self) -> Any:  # noqa: ANN401 - torch.export's own nested form
        """Returns the dimensions that may vary, as `torch.export.export` takes them, or None."""
        return None

    def get_calibration_data(self) -> Sequence[Inputs]:
        """Returns the inputs that static quantisation observes; none means the example inputs."""
        return ()

    def get_methods(self) -> Mapping[str, ExportMethod]:
        """Returns the program's methods by name; override it for more than `forward`."""
        return {"forward": _forward_method(self)}

    def get_constants(self) -> Mapping[str, int]:
        """Returns what the program tells at run time, by method name, such as `get_max_seq_len`."""
        return {}


def collect_methods(model: EagerModelBase) -> Mapping[str, ExportMethod]:
    """Returns the methods of `model`, whose class may offer only the two required functions."""
    if not hasattr(model, "get_methods"):
        return {"forward": _forward_method(model)}
    methods: object = model.get_methods()
    if not isinstance(methods, Mapping) or not methods:
        raise ExportError(f"get_methods returns {_describe(methods)}; {_FORM}")
    for name, method in methods.items():
        if not isinstance(name, str) or not isinstance(method, ExportMethod):
            raise ExportError(f"get_methods gives {_describe(method)} for {name!r}; {_FORM}")
    return methods


def _describe(value: object) -> str:
    is_nothing = value is None or (isinstance(value, Sized) and not len(value))
    return "nothing" if is_nothing else f"an object of class {type(value).__name__}"


def collect_constants(model: EagerModelBase) -> Mapping[str, int]:
    """Returns the constants of `model`, whose class may have none to offer."""
    return _optional(model, "get_constants") or {}


def _forward_method(model: EagerModelBase) -> ExportMethod:
    return ExportMethod(
        module=model.get_eager_model(),
        inputs=checked_inputs(model.get_example_inputs(), "get_example_inputs"),
        kwarg_inputs=_optional(model, "get_example_kwarg_inputs") or {},
        dynamic_shapes=_optional(model, "get_dynamic_shapes"),
        calibration=_optional(model, "get_calibration_data") or (),
    )


def checked_inputs(value: object, where: str) -> Inputs:
    """Returns positional inputs as a tuple; raises ExportError for what is no tuple or list.

    A tensor alone would be taken apart along its batch axis.
    """
    if isinstance(value, tuple | list):
        return tuple(value)
    msg = f"{where} gives a {type(value).__name__}, not a tuple of inputs; for one input `return (x,)`"
    raise ExportError(msg)


def _optional(model: EagerModelBase, name: str) -> Any:  # noqa: ANN401 - depends on `name`
    """Returns what method `name` returns, or None where the class does not have it."""
    return getattr(model, name)() if hasattr(model, name) else None
