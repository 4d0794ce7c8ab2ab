"""What holds for every answer.

The page shows how a topology stands to whoever can reach it, so it must not be reachable through somebody's browser: other
origins may not frame, read or embed it, and the Host header must name this server, or a foreign site whose name resolves to
its address could read it: on every address, as people reach a pod by a port-forward on the loopback of their own machine.
The content policy lets a page load and ask its own server only.
"""

from __future__ import annotations

import re

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reprise.controller.web import login
from reprise.controller.web.login import Token

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
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


def read_only(hosts: frozenset[str], token: Token | None = None) -> Middleware:
    """Refuses all but GET and HEAD and signing in, and names other than `hosts` to those who do not show the token in a
    header."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        signs_in = token is not None and request.path == login.PATH and request.method == "POST"
        if request.method not in ("GET", "HEAD") and not signs_in:
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
        known = _PORT.sub("", request.headers.get("Host", "")).lower() in hosts
        if not known and not (token is not None and token.is_in(request.headers)):
            raise web.HTTPMisdirectedRequest(
                text="this server does not go by that name; names of a proxy belong in web.hosts\n"
            )
        return await handler(request)

    return check


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """On errors, too; what an answer says of its caching stays."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-cache")
