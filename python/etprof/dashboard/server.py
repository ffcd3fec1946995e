"""Serves the dashboard: to this machine alone, unless the user says otherwise.

Connections whose request never comes are ended: nobody can hold the dashboard by half a header.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from etprof.base.errors import EtprofError, UsageError
from etprof.base.interruption import until_interrupted
from etprof.dashboard.addresses import ServedLinks, make_address, pages
from etprof.dashboard.render import ASSETS, answer, read_asset, render_problem
from etprof.dashboard.visit import Catalogue, NoSuchPageError, Visit

if TYPE_CHECKING:
    import asyncio

    from starlette.requests import Request

    from etprof.dashboard.visit import PageCache
    from etprof.history.store import Store

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
REQUEST_S: Final = 10.0
"""Longest from the begin of a connection, or the last answer, to the end of a request's header."""
MOST_WAITING: Final = 64
"""Connections that may wait for their header; a new one takes the place of the oldest."""
MOST_CONNECTIONS: Final = 256
"""All of them, those being answered too; beyond it the answer is 503."""
MOST_HEADER_BYTES: Final = 16_384
_COMMON_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
_REPORT_HEADERS: Final = {
    **_COMMON_HEADERS,
    # A file from a run directory is a stranger: in a sandbox it has no origin to act for.
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}


def create_app(store: Store, host_names: tuple[str, ...] | None = _LOOPBACK_NAMES) -> Starlette:
    """Returns the web application.

    It answers only to `host_names`, so that no web page can reach it through a name of its own that
    points to this machine (DNS rebinding); None takes any name.
    """
    cache: PageCache = {}

    def respond(request: Request) -> Response:
        host = request.headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if host_names is not None and name not in host_names:
            return PlainTextResponse("this dashboard answers to localhost only", 421)
        return _respond(store, cache, request.path_params["name"], dict(request.query_params))

    return Starlette(routes=[Route("/{name:path}", respond, methods=["GET"])])


def _respond(store: Store, cache: PageCache, name: str, query: dict[str, str]) -> Response:
    if not name:
        return RedirectResponse("overview", headers=_COMMON_HEADERS)
    if name in ASSETS:
        return Response(read_asset(name), media_type=ASSETS[name], headers=_COMMON_HEADERS)
    try:
        return _respond_with_page(store, cache, name, query)
    except NoSuchPageError as error:
        return _problem(404, "No such page", str(error))
    except EtprofError as error:
        return _problem(503, "The history cannot be read", str(error))


def _respond_with_page(
    store: Store, cache: PageCache, name: str, query: dict[str, str]
) -> Response:
    if name not in pages():
        msg = "the dashboard has no page of this name"
        raise NoSuchPageError(msg)
    with store.session() as session:
        catalogue = Catalogue(session, cache=cache)
        links = ServedLinks(catalogue.link_of)
        visit = Visit(make_address(name, query), links, catalogue)
        content, is_report = answer(visit)
    headers = _REPORT_HEADERS if is_report else _COMMON_HEADERS
    return Response(content, media_type="text/html; charset=utf-8", headers=headers)


def _problem(status: int, title: str, message: str) -> Response:
    page = render_problem(make_address("overview", {}), ServedLinks(), title, message)
    return HTMLResponse(page, status, headers=_COMMON_HEADERS)


def listen(host: str, port: int, *, beyond_loopback: bool = False) -> socket.socket:
    """Opens the socket; raises UsageError for an address that may not or cannot be had."""
    family, address = _resolve(host, port)
    if not beyond_loopback and not ipaddress.ip_address(address).is_loopback:
        msg = (
            f"--host {host} would show the dashboard to other machines, without a password; "
            "add --listen-beyond-loopback if that is wanted"
        )
        raise UsageError(msg)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            msg = f"port {port} of {host} is in use; choose another with --port, 0 takes a free one"
        else:
            msg = f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port"
        raise UsageError(msg) from error
    return listener


def _resolve(host: str, port: int) -> tuple[int, str]:
    """Returns the address family and the numeric address, so that both are judged and bound."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        msg = f"--host {host} is not an address of this machine; use 127.0.0.1"
        raise UsageError(msg) from error
    family, _, _, _, address = addresses[0]
    return family, str(address[0])


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, whose patience with a request has an end."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait; where too many do, the one that has waited longest is ended."""
        super().connection_made(transport)
        self._wait()
        waiting = [
            (protocol._timer.when(), number, protocol)
            for number, protocol in enumerate(self.connections)
            if isinstance(protocol, PatientProtocol) and protocol._timer is not None
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


def make_server(store: Store, *, beyond_loopback: bool = False) -> uvicorn.Server:
    """Returns the server, to be run with a socket."""
    config = uvicorn.Config(
        create_app(store, None if beyond_loopback else _LOOPBACK_NAMES),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http=PatientProtocol,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(store: Store, listener: socket.socket, *, beyond_loopback: bool = False) -> None:
    """Answers until it is interrupted."""
    # Ctrl-C is how a user ends it, so it is no failure.
    with until_interrupted():
        make_server(store, beyond_loopback=beyond_loopback).run(sockets=[listener])
