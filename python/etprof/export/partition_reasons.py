"""Collects why the partitioner left nodes out of the delegate, from its own debug log."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGER_NAME = "executorch.backends.xnnpack.partition"


class _ReasonCollector(logging.Handler):
    """Reads the `WhyNoPartition` objects that are logged in place of messages."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the first reason of each node; later rounds repeat it."""
        message: Any = record.msg
        if hasattr(message, "node") and message.node is not None:
            self.reasons.setdefault(message.node.name, str(message.reason).rstrip("."))


@contextmanager
def collected_reasons() -> Iterator[dict[str, str]]:
    """Yields the reasons by node name; they arrive while the block lowers a model."""
    logger = logging.getLogger(_LOGGER_NAME)
    collector = _ReasonCollector()
    before = logger.level, logger.propagate, logger.handlers
    logger.handlers, logger.propagate = [collector], False
    logger.setLevel(logging.DEBUG)
    try:
        yield collector.reasons
    finally:
        logger.level, logger.propagate, logger.handlers = before
        logger.setLevel(before[0])
