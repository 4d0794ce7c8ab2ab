"""The page on an address, in a thread with an event loop of its own: who shares the process is never waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

from aiohttp import web

from reprise.controller.web.app import make_app
from reprise.controller.web.board import Board
from reprise.controller.web.errors import WebError
from reprise.controller.web.guard import LOOPBACK
from reprise.controller.web.login import Token

MAX_CONNECTIONS = 256
"""One more is told to come again; a browser holds one to six."""
EVERYWHERE = ("", "0.0.0.0", "::")
"""All addresses, and so the name of none: browsers take 0.0.0.0 for this machine."""
_IDLE_S = 30.0
_STOP_S = 1.0
_START_S = 10.0
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


class WebServer:
    """`port` 0: any free one.  Only requests to its address, the loopback's names and `names` are answered, whatever
    addresses it listens on; and with a token only those who show it."""

    def __init__(
        self, board: Board, host: str, port: int, leader: Callable[[], str | None] = lambda: "", *,
        names: Iterable[str] = (), token: Token | None = None,
    ) -> None:  # fmt: skip
        self._host, self._port = host, port
        hosts = LOOPBACK | {_as_host(name) for name in (host, *names) if name not in EVERYWHERE}
        self._app = make_app(board, hosts, leader, token)
        self._thread = threading.Thread(target=self._run, daemon=True, name="web")
        self._started = threading.Event()
        self._error: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        """The address, with the real port once it is started."""
        known = "127.0.0.1" if self._host in EVERYWHERE else self._host
        host = f"[{known}]" if ":" in known else known
        return f"http://{host}:{self._port}"

    def start(self) -> None:
        """Returns when it listens.  WebError when it cannot."""
        self._thread.start()
        self._started.wait(_START_S)
        if self._error is not None:
            where = f"{self._host or 'all addresses'}, port {self._port}"
            raise WebError(f"the web page cannot be served on {where}: {self._error}") from self._error

    def stop(self) -> None:
        """Ends streams, too; returns when the address is free again."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop, self._stop = loop, asyncio.Event()
        runner = web.AppRunner(
            self._app,
            handle_signals=False,
            access_log=None,
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=_STOP_S,
        )
        await runner.setup()
        try:
            listening = await loop.create_server(lambda: _admit(runner), self._host or None, self._port)
            self._port = listening.sockets[0].getsockname()[1]
            self._started.set()
            await self._stop.wait()
            listening.close()
        finally:
            await runner.cleanup()


def _as_host(name: str) -> str:
    """The name as the Host header writes it."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name.lower()


def _admit(runner: web.AppRunner) -> asyncio.BaseProtocol:
    server = runner.server
    assert server is not None
    return server() if len(server.connections) < MAX_CONNECTIONS else _Full()


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answers before anything was asked."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(_FULL)
        transport.close()
