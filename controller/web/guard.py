"""What holds for every answer.

The page shows how a topology stands to whoever can reach it, so it must not be reachable through somebody's browser: other
origins may not frame, read or embed it, and on a loopback address the Host header must name the loopback, or a foreign site
whose name resolves to 127.0.0.1 could read it.  The content policy lets a page load and ask its own server only.
"""

from __future__ import annotations

import re

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Server": "reprise",
}
_PORT = re.compile(r":\d+$")


def read_only(hosts: frozenset[str]) -> Middleware:
    """Refuses all but GET and HEAD, and names other than `hosts` where that is not empty."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
        if hosts and _PORT.sub("", request.headers.get("Host", "")).lower() not in hosts:
            raise web.HTTPMisdirectedRequest(text="this server answers to its loopback names alone\n")
        return await handler(request)

    return check


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """On errors, too; what an answer says of its caching stays."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-cache")
