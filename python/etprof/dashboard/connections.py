"""Ends connections whose request never comes: nobody can hold the dashboard by half a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

REQUEST_S: Final = 10.0
"""Longest from the begin of a connection, or the last answer, to the end of a request's header."""
MOST_WAITING: Final = 64
"""Connections that may wait for their header; a new one takes the place of the oldest."""
MOST_CONNECTIONS: Final = 256
"""All of them, those being answered too; beyond it the answer is 503."""
MOST_HEADER_BYTES: Final = 16_384


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, whose patience with a request has an end."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait; where too many do, the one that has waited longest is ended."""
        super().connection_made(transport)
        self._wait()
        waiting = [
            (each._timer.when(), number, each)
            for number, each in enumerate(self.connections)
            if isinstance(each, PatientProtocol) and each._timer is not None
        ]
        if len(waiting) > MOST_WAITING:
            oldest = min(waiting)[2]
            oldest._stop_waiting()
            # The system closes it a moment later; until then it would count as served.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Stops waiting once a request is whole; single bytes prolong nothing."""
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Waits for the next request, unless that is there already."""
        self._wait()
        super().on_response_complete()
        if self._is_answering():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        # None before the first request, whatever uvicorn's annotation says.
        return not getattr(self.cycle, "response_complete", True)

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
