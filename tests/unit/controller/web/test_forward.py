"""The pages of the operator that works, out of the one that waits: passed on once, or refused with when to ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from reprise.controller.web.forward import MARK, Forwarder

LEADER = "leader"
Ask = Callable[[TestClient[web.Request, web.Application]], Awaitable[None]]


def application(name: str, leader: Callable[[], str | None], seen: list[web.Request]) -> web.Application:
    forwarder = Forwarder(leader)
    made = web.Application(middlewares=[forwarder.middleware])
    made.cleanup_ctx.append(forwarder.session)

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        if request.path == "/api/none":
            raise web.HTTPNotFound(text=f"none at {name}\n")
        body = f"{name} {request.raw_path}"
        return web.Response(text=body, headers={"ETag": '"e"', "Set-Cookie": "a=b", "Server": "secret"})

    made.router.add_route("*", "/{path:.*}", answer)
    return made


def two(ask: Ask, leader: str | None = LEADER) -> list[web.Request]:
    """A waiting operator is asked, beside one that works; what reached the one that works.  `leader`: what the Lease says,
    LEADER for the address of the one that works."""
    seen: list[web.Request] = []

    async def run() -> None:
        async with TestServer(application("works", lambda: "", seen)) as works:
            told = str(works.make_url("")).rstrip("/") if leader == LEADER else leader
            waits = TestServer(application("waits", lambda: told, []))
            async with TestClient(waits) as client:
                await ask(client)

    asyncio.run(run())
    return seen


def test_a_request_is_passed_on_as_it_is_and_its_answer_comes_back() -> None:
    async def ask(client: TestClient[web.Request, web.Application]) -> None:
        headers = {"If-None-Match": '"x"', "Authorization": "Bearer t", "X-Other": "1"}
        async with client.get(
            URL("/api/v1/a%2Fb?c=d%20e", encoded=True), headers=headers, skip_auto_headers=["Accept-Encoding"]
        ) as found:
            assert (found.status, await found.text()) == (200, "works /api/v1/a%2Fb?c=d%20e")
            assert found.headers["ETag"] == '"e"'
            assert "Set-Cookie" not in found.headers and found.headers.get("Server") != "secret"

    (request,) = two(ask)
    assert request.headers[MARK] == "1"
    assert (request.headers["If-None-Match"], request.headers["Authorization"]) == ('"x"', "Bearer t")
    assert request.headers["Accept-Encoding"] == "identity", "nobody has asked for another"
    assert "X-Other" not in request.headers


def test_what_the_leader_refuses_is_refused_here() -> None:
    async def ask(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/none") as found:
            assert (found.status, await found.text()) == (404, "none at works\n")

    two(ask)


def test_the_files_of_the_pages_are_at_home_everywhere() -> None:
    async def ask(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/index.html") as found:
            assert await found.text() == "waits /index.html"

    assert two(ask) == []


@pytest.mark.parametrize("passed_on", [False, True])
def test_where_nobody_leads_or_it_was_passed_on_already_it_is_asked_again_later(passed_on: bool) -> None:
    async def ask(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1", headers={MARK: "1"} if passed_on else {}) as found:
            assert (found.status, found.headers["Retry-After"]) == (503, "2")
            assert await found.text() == "no operator leads at this moment\n"

    assert two(ask, LEADER if passed_on else None) == [], (
        "two that take each other for the leader do not go round in circles"
    )


def test_a_leader_that_is_gone_is_a_bad_gateway() -> None:
    async def ask(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1") as found:
            assert (found.status, await found.text()) == (502, "the operator that leads does not answer\n")

    two(ask, "http://127.0.0.1:1")


def test_connections_to_the_leader_end_with_the_application() -> None:
    forwarder = Forwarder(lambda: "")

    async def run() -> ClientSession:
        async for _ in forwarder.session(web.Application()):
            session = forwarder._session
            assert session is not None and not session.closed
        assert session is not None
        return session

    assert asyncio.run(run()).closed
