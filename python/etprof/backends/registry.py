"""Every backend that etprof knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from etprof.backends.backend import Backend
from etprof.backends.portable import PortableBackend
from etprof.backends.xnnpack.backend import XnnpackBackend

BACKENDS: Final[tuple[Backend, ...]] = (XnnpackBackend(), PortableBackend())
"""The first one is the default of an export."""
BY_NAME: Final = {backend.name: backend for backend in BACKENDS}
DEFAULT: Final = BACKENDS[0].name
LOG_TAGS: Final = tuple(backend.log_tag for backend in BACKENDS if backend.log_tag)
PORTABLE: Final = BACKENDS[-1]
OPAQUE: Final = Backend()


def backend_of(delegate: str | None) -> Backend:
    """Returns the backend that a program calls `delegate`; an unknown one is opaque."""
    return next((backend for backend in BACKENDS if backend.delegate == delegate), OPAQUE)


def backend_named(name: str | None) -> Backend:
    """Returns the backend that an export's manifest names, the default where none is named."""
    return BY_NAME.get(DEFAULT if name is None else name, OPAQUE)


def backend_of_labels(labels: Collection[str]) -> Backend:
    """Returns the backend in whose words one delegate call is labelled, where no report names it."""
    return next((b for b in BACKENDS if b.delegate and b.recognises(labels)), OPAQUE)


def assign_backends(
    calls: Mapping[int, Collection[str]], named: Mapping[int, str]
) -> dict[int, Backend]:
    """Returns the backend of each delegate call: of its name, else of its operators' labels."""
    return {
        call: backend_of(named[call]) if call in named else backend_of_labels(labels)
        for call, labels in calls.items()
    }


def event_label(
    names: Sequence[str], name_index: int, label_index: int, number: int
) -> tuple[str, bool]:
    """Names an event, and says whether it is a delegate's operator.

    That has a label (a place in `names`), or a number where the delegate only counts; another
    event has its own name.
    """
    if label_index >= 0:
        return names[label_index], True
    return (f"delegate operator {number}", True) if number >= 0 else (names[name_index], False)
