"""A link to a server that fails on request: cut at a chosen message, severed, or silent."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

When = Literal["before", "after"]
"""Before the message has reached the server, or after the server's answer to it, untold."""


class Proxy:
    """Stands before the server of a URL; ``url`` is the way through it.

    Attributes:
        cuts: how often a chosen message has ended its link.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        self.cuts = 0
        self._marker: bytes | None = None
        self._when: When = "before"
        self._away_s = 0.0
        self._severed = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._links: set[_Link] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.sever()
        self._flowing.set()

    def cut(self, marker: bytes, when: When, *, away_s: float = 0.0) -> None:
        """End the link of the next message that holds this; nobody gets through for so long."""
        self._when, self._away_s = when, away_s
        self._marker = marker

    def sever(self) -> None:
        """End every link, and let nobody through."""
        with self._lock:
            self._severed = True
            links = list(self._links)
        for link in links:
            link.end()

    def silence(self) -> None:
        """Let nothing through, and end nothing."""
        self._flowing.clear()

    def restore(self) -> None:
        """Let everything through."""
        self._severed = False
        self._flowing.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the proxy ends
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._severed:
                        client.close()
                        continue
                    link = _Link(self, client, socket.create_connection(self._server))
                    self._links.add(link)
                link.start()

    def flow(self) -> None:
        """Wait while the link is silent."""
        self._flowing.wait()

    def chosen(self, data: bytes) -> When | None:
        """Whether this message is the one that is cut, and on which side."""
        with self._lock:
            if self._marker is None or self._marker not in data:
                return None
            self._marker = None
            self.cuts += 1
            if self._away_s:
                self._severed = True
                again = threading.Timer(self._away_s, self.restore)
                again.daemon = True
                again.start()
            return self._when

    def forget(self, link: _Link) -> None:
        """It has ended."""
        with self._lock:
            self._links.discard(link)


class _Link:
    """One client's connection, and the one to the server behind it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._untold = False

    def start(self) -> None:
        for pump in (self._ask, self._answer):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def _run(self, pump: object) -> None:
        with contextlib.suppress(OSError):
            while callable(pump) and pump():
                pass
        self.end()

    def _ask(self) -> bool:
        data = self._client.recv(65536)
        self._proxy.flow()
        when = self._proxy.chosen(data)
        self._untold = when == "after"
        if data and when != "before":
            self._server.sendall(data)
            return True
        return False

    def _answer(self) -> bool:
        data = self._server.recv(65536)
        self._proxy.flow()
        if data and not self._untold:
            self._client.sendall(data)
            return True
        return False

    def end(self) -> None:
        """End both sides; again is no error."""
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
        self._proxy.forget(self)
