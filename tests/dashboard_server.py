"""A dashboard that really listens, on a free port of loopback, for as long as a test needs it."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.dashboard.server import listen, make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.history.store import Store


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Served:
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, *, method: str = "GET", host: str | None = None) -> Answer:
        """Sends one request, the path just as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Host": f"127.0.0.1:{self.port}" if host is None else host}
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
        finally:
            connection.close()


@contextmanager
def serving(store: Store, *, beyond_loopback: bool = False) -> Iterator[Served]:
    """Serves a store in a thread of its own."""
    # It listens already, so the first request waits in its queue until the server answers.
    with listen("127.0.0.1", 0) as listener:
        server = make_server(store, beyond_loopback=beyond_loopback)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
            store.engine.dispose()
