"""Reads operator names and says in which category their time belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.backends.xnnpack.vocabulary import (
    ATEN_CLASSES,
    MICROKERNEL_CLASSES,
    UNKNOWN,
    XNNPACK_CLASSES,
    OperatorClass,
)
from etprof.etdump.plausibility import KERNEL_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

_XNNPACK_LABEL: Final = re.compile(
    r"(?P<base>[A-Za-z0-9][A-Za-z0-9 ]*) \((?P<detail>[^()]*)\)"
    r"(?: (?P<microkernel>[A-Za-z0-9][A-Za-z0-9 ]*?))?(?: #(?P<number>\d+))?"
)
_LAYOUTS: Final = frozenset({"NC", "ND", "NHWC", "NCHW", "NWC", "NCHW2NHWC"})


@dataclass(frozen=True)
class OperatorName:
    """The parts of an operator's name in an ETDump."""

    base: str
    """XNNPACK operator type without its brackets, or ATen name without overload."""
    data_types: tuple[str, ...]
    """XNNPACK's data types, such as ("QD8", "F32", "QC8W"); empty when not named."""
    microkernel_type: str | None
    """XNNPACK's microkernel type, such as "IGEMM"."""
    operator_class: OperatorClass

    @property
    def is_known(self) -> bool:
        """Whether the project's table has this operator."""
        return self.operator_class != UNKNOWN


def delegate_label(names: Sequence[str], label_id: int, number: int) -> str:
    """Names a delegate's operator: by its label, or by number where the delegate only counts."""
    return names[label_id] if label_id >= 0 else f"delegate operator {number}"


def parse_delegated_name(label: str) -> OperatorName:
    """Reads the label that a delegate gave its operator, such as `Softmax (NC, F32) #1`."""
    match = _XNNPACK_LABEL.fullmatch(label)
    if match is None:
        return OperatorName(label, (), None, UNKNOWN)
    base, microkernel = match["base"], match["microkernel"]
    words = [word.strip() for word in match["detail"].split(",")]
    types = tuple(word for word in words if word and word not in _LAYOUTS)
    by_microkernel = MICROKERNEL_CLASSES.get((base, microkernel or ""))
    found = by_microkernel or XNNPACK_CLASSES.get(base, UNKNOWN)
    return OperatorName(base, types, microkernel, found)


def parse_kernel_name(name: str) -> OperatorName:
    """Reads the name of a kernel outside delegates, such as `native_call_addmm.out`.

    ATen names are read as well: `aten::addmm.out`, `aten.addmm.default`.
    """
    text = name.removeprefix(KERNEL_PREFIX)
    text = re.sub(r"^[a-z_0-9]+::", "", text)
    text = re.sub(r"^(aten|quantized_decomposed|dim_order_ops|torchao|llama)\.", "", text)
    base = text.split(".")[0]
    return OperatorName(base, (), None, ATEN_CLASSES.get(base, UNKNOWN))


def is_kernel_name(name: str) -> bool:
    """Whether an event of this name is the execution of one kernel outside delegates."""
    return name.startswith(KERNEL_PREFIX)
