"""What is answered to which path.

| path | answer |
|---|---|
| `/` | page: all topologies |
| `/t/NAMESPACE/NAME` | page: one topology |
| `/static/...` | files of the pages |
| `/api/v1/topologies` | all, in short |
| `/api/v1/topologies/NAMESPACE/NAME` | the status document |
| `/api/v1/topologies/NAMESPACE/NAME/page` | the same with what comes back next, as the page is drawn from it |
| `/api/v1/topologies/NAMESPACE/NAME/records` | the records that the document is made of |
| `/api/v1/topologies/NAMESPACE/NAME/stream` | server-sent events: when there is a newer document |

The stream says that there is news and not what: a document has one form and one cache, and a page without stream asks
for it from time to time.  Every link is relative, so the page works below any prefix that a proxy puts before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from reprise.controller.web.assets import Asset, assets, runbooks
from reprise.controller.web.board import Board, Key, Rendered
from reprise.controller.web.forward import Forwarder
from reprise.controller.web.guard import add_headers, read_only
from reprise.controller.web.login import Token, ask_for

NEWS_S = 1.0
"""A stream speaks at most so often."""
ALIVE_S = 15.0
"""And at least so often, so that nothing between takes it for dead."""
MAX_STREAMS = 64
"""Viewers with live updates; further ones ask from time to time."""
JSON = "application/json"
BOARD = web.AppKey("board", Board)
STREAMS = web.AppKey("streams", set[int])


def make_app(
    board: Board, hosts: frozenset[str], leader: Callable[[], str | None], token: Token | None = None
) -> web.Application:
    """`hosts`: names that it answers to.  `token`: what must be shown, if anything.  `leader`: empty while the board here is
    the one that is kept, else the URL of the server that has it, None when nobody has."""
    forwarder = Forwarder(leader)
    asks = [] if token is None else [ask_for(token)]
    app = web.Application(middlewares=[read_only(hosts, token), *asks, forwarder.middleware])
    app[BOARD], app[STREAMS] = board, set()
    app.on_response_prepare.append(add_headers)
    app.cleanup_ctx.append(forwarder.session)
    one = "/api/v1/topologies/{namespace}/{name}"
    app.add_routes(
        [
            web.get("/", _page("index.html")),
            web.get("/t/{namespace}/{name}", _page("topology.html")),
            web.get("/static/{path:.+}", _static),
            web.get("/runbooks/{name}", _runbook),
            web.get("/api/v1/topologies", _listing),
            web.get(one, _document),
            web.get(f"{one}/page", _drawn),
            web.get(f"{one}/records", _records),
            web.get(f"{one}/stream", _stream),
        ]
    )
    return app


def _page(name: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return _asset(request, name)

    return answer


async def _static(request: web.Request) -> web.Response:
    return _asset(request, request.match_info["path"])


async def _runbook(request: web.Request) -> web.Response:
    return _given(request, runbooks().get(request.match_info["name"]))


def _asset(request: web.Request, path: str) -> web.Response:
    return _given(request, assets().get(path))


def _given(request: web.Request, asset: Asset | None) -> web.Response:
    if asset is None:
        raise web.HTTPNotFound(text="no such file\n")
    return _send(request, asset.content, asset.kind)


async def _listing(request: web.Request) -> web.Response:
    made = await asyncio.to_thread(request.app[BOARD].listing)
    return _send(request, made, JSON)


async def _document(request: web.Request) -> web.Response:
    made = await asyncio.to_thread(request.app[BOARD].document, _key(request))
    if made is None:
        raise web.HTTPNotFound(text="no such topology is looked after here\n")
    return _send(request, made, JSON)


async def _drawn(request: web.Request) -> web.Response:
    """`Age` says for how long nobody has looked at the topology; it is no part of the body, which stays the same."""
    board, key = request.app[BOARD], _key(request)
    made = await asyncio.to_thread(board.page, key)
    age = board.age(key)
    if made is None or age is None:
        raise web.HTTPNotFound(text="no such topology is looked after here\n")
    answer = _send(request, made, JSON)
    answer.headers["Age"] = str(round(age))
    return answer


async def _records(request: web.Request) -> web.Response:
    made = await asyncio.to_thread(request.app[BOARD].records, _key(request))
    if made is None:
        raise web.HTTPNotFound(text="no such topology is looked after here\n")
    return _send(request, made, JSON)


async def _stream(request: web.Request) -> web.StreamResponse:
    board, streams, key = request.app[BOARD], request.app[STREAMS], _key(request)
    if board.version(key) is None:
        raise web.HTTPNotFound(text="no such topology is looked after here\n")
    if len(streams) >= MAX_STREAMS:
        raise web.HTTPServiceUnavailable(text="too many streams\n", headers={"Retry-After": "10"})
    streams.add(id(request))
    try:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        if request.method == "GET":
            with contextlib.suppress(ConnectionResetError):  # the viewer has gone
                await _tell(response, lambda: None if _left(request) else board.version(key))
        return response
    finally:
        streams.discard(id(request))


async def _tell(response: web.StreamResponse, version: Callable[[], int | None]) -> None:
    """Tell the viewer of each new version, until the viewer goes, or the topology."""
    last: int | None = None
    quiet = 0.0
    await response.write(b"retry: 2000\n\n")
    while (now := version()) is not None:
        if now != last:
            await response.write(b"event: news\ndata: %d\n\n" % now)
            last, quiet = now, 0.0
        elif quiet >= ALIVE_S:
            await response.write(b": nothing new\n\n")
            quiet = 0.0
        await asyncio.sleep(NEWS_S)
        quiet += NEWS_S
    await response.write(b"event: gone\ndata: 0\n\n")


def _left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _key(request: web.Request) -> Key:
    return request.match_info["namespace"], request.match_info["name"]


def takes_gzip(accepted: str) -> bool:
    """Whether the client of this `Accept-Encoding` takes packed bytes: it may name them, or all, with a weight of 0."""
    weights: dict[str, float] = {}
    for entry in accepted.lower().split(","):
        coding, *parameters = (part.strip() for part in entry.split(";"))
        weights[coding] = min([1.0, *(_weight(p) for p in parameters if p.startswith("q"))])
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _weight(parameter: str) -> float:
    """0 for what is none: plain bytes are right for everybody."""
    try:
        weight = float(parameter.partition("=")[2])
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def _send(request: web.Request, content: Rendered, kind: str) -> web.Response:
    headers = {"ETag": content.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if content.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    body = content.body
    asked = ",".join(request.headers.getall("Accept-Encoding", []))
    if takes_gzip(asked) and len(content.packed) < len(body):
        body, headers["Content-Encoding"] = content.packed, "gzip"
    return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)
