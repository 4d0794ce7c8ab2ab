"""One browser for each file of tests, a server for each test, and what holds whatever a test does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver

from reprise.controller.web import Board, WebServer

pytest.register_assert_rewrite("tests.web.geometry", "tests.web.pages")

from tests.web.browser import complaints, requests, window  # noqa: E402 - pages and geometry are rewritten first
from tests.web.pages import show  # noqa: E402


@pytest.fixture
def server(board: Board) -> Iterator[WebServer]:
    """The page of `board`, which each file of tests has its own of."""
    served = WebServer(board, "127.0.0.1", 0)
    served.start()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[WebDriver]:
    with window() as opened:
        yield opened


@pytest.fixture(scope="module")
def served() -> list[str]:
    """URLs of the servers that there were for the browser: it may report a request of the page before late."""
    return []


@pytest.fixture
def browser(shared: WebDriver, server: WebServer, served: list[str]) -> Iterator[WebDriver]:
    """Whatever a test does: nothing was asked of anybody else."""
    served.append(server.url)
    show(shared)
    requests(shared), complaints(shared)
    yield shared
    foreign = [url for url in requests(shared) if not url.startswith((*served, "data:", "about:"))]
    assert foreign == []
    shared.get("about:blank")
    complaints(shared)  # answers of 404 are noted by the browser; each test says what else it allows
