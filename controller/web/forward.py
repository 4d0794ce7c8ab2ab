"""The pages of the operator that works, out of the one that waits.

A Service spreads requests over all operators, but only the holder of the Lease observes topologies.  The others know its
address from the Lease and pass requests on, so nobody who opens the page has to know who leads.  Invariant: a request is
passed on once; what was passed on already and still is not at home is answered with 503.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from reprise.controller.web.login import HEADER

MARK = "X-Reprise-Forwarded"
_PASSED_ON = ("Accept", "Accept-Encoding", "If-None-Match", "Authorization", HEADER, "Cookie")
"""The token, too: every operator asks for it, and all know the same one."""
_TAKEN_OVER = (
    "Content-Type",
    "Content-Encoding",
    "ETag",
    "Vary",
    "Cache-Control",
    "Retry-After",
    "Allow",
    "Age",
)
_SILENT_S = 30.0
"""A stream speaks every 15 s."""


class Forwarder:
    """`leader`: empty while this process is the one that knows, else the URL of it, None when nobody is."""

    def __init__(self, leader: Callable[[], str | None]) -> None:
        self._leader = leader
        self._session: aiohttp.ClientSession | None = None

    async def session(self, _: web.Application) -> AsyncIterator[None]:
        """Connections to the leader, for as long as the application lives."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=_SILENT_S)
        # As it comes: what the leader has packed goes on packed.
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session:
            yield

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers here what is at home here; the files of the pages are at home everywhere."""
        leader = self._leader()
        if leader == "" or not request.path.startswith("/api/"):
            return await handler(request)
        if leader is None or MARK in request.headers:
            raise web.HTTPServiceUnavailable(
                text="no operator leads at this moment\n", headers={"Retry-After": "2"}
            )
        return await self._pass_on(request, leader)

    async def _pass_on(self, request: web.Request, leader: str) -> web.StreamResponse:
        assert self._session is not None
        plain = {
            "Accept-Encoding": "identity"
        }  # of who asks for nothing; else aiohttp would ask for what it likes itself
        headers = plain | {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        response: web.StreamResponse | None = None
        try:
            async with self._session.request(
                request.method,
                leader + request.raw_path,
                headers={**headers, MARK: "1"},
                allow_redirects=False,
            ) as answer:
                kept = {name: answer.headers[name] for name in _TAKEN_OVER if name in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
        except (aiohttp.ClientError, TimeoutError, ConnectionResetError) as error:
            if response is None:  # else the viewer has gone, or the leader in the middle: the page asks again
                raise web.HTTPBadGateway(text="the operator that leads does not answer\n") from error
        assert response is not None
        return response
