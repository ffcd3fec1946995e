"""The silence around the known noise of ExecuTorch and torchao.

They warn about their own use of older Python and PyTorch interfaces, on import and while they
lower. None of it concerns the model or its owner. What is dropped is listed here, by message or by
the library's own modules; every other warning and log record is kept.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARIES = r"(torch|torchao|executorch)(\.|$)"

# Attributed to the standard library, because the calling frame is.
_KNOWN_WARNINGS = (
    r"(read_text|open_text|read_binary) is deprecated",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r"This API is experimental and subject to change",
    r"Guards may run slower on Python 3\.13\.0",
    # Given for every changed buffer, also after the pass it recommends, which lowering.py runs.
    r"Mutation on a buffer in the model is detected",
    # torch.nn.RNN, LSTM and GRU list their weights again whenever they are moved or cast.
    r"The tensor attributes? [^=]*\._flat_weights\[0\]",
)

# torchao looks for its CUDA extensions, which a CPU build of PyTorch cannot load.
_KNOWN_LOG_LINES = re.compile(
    r"Failed to load .*torchao|Skipping import of cpp extensions|is an Enum subclass and is now"
)


class _LogCollector(logging.Handler):
    """Keeps the records of WARNING and above that are not known noise."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one record."""
        message = record.getMessage()
        if not _KNOWN_LOG_LINES.search(message):
            self.messages.append(f"{record.name}: {message}")


def _library_loggers() -> list[logging.Logger]:
    """Returns the libraries' loggers that have handlers of their own."""
    return [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.handlers and re.match(_LIBRARIES, name)
    ]


@contextmanager
def _sole_log_handler(handler: logging.Handler) -> Iterator[None]:
    """Makes `handler` the only one of the loggers that the libraries write to."""
    loggers = [logging.getLogger(), *_library_loggers()]
    before = [logger.handlers for logger in loggers]
    for logger in loggers:
        logger.handlers = [handler]
    try:
        yield
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers = handlers


@contextmanager
def quiet_upstream() -> Iterator[list[str]]:
    """Drops the libraries' known noise; yields the list of the log lines that remain."""
    collector = _LogCollector()
    with warnings.catch_warnings(), _sole_log_handler(collector):
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=_LIBRARIES)
        warnings.filterwarnings("ignore", category=FutureWarning, module=_LIBRARIES)
        for message in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield collector.messages
