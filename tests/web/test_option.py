"""`reprise run --web`: the page from the start of a run to its end, without the run."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import click
import pytest

from reprise.controller.cli.web_option import web_page
from reprise.controller.status.query_state import run_state
from reprise.spark_jobs.topology import expand
from tests.web import moments


def get(url: str) -> Any:
    with urllib.request.urlopen(url.replace("/t/", "/api/v1/topologies/"), timeout=300) as answer:
        return json.load(answer)


def test_the_page_is_there_from_the_start_and_goes_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprise.controller.web.board.FRESH_S", 0.0)
    monkeypatch.setattr("reprise.controller.web.board.FRESH_TIMES", 0.0)
    life = moments.topology2()
    with web_page(life.resource, 0) as page:
        assert get(page.url)["phase"] == "starting"
        page.show(run_state(expand(life.resource), life.seen()))
        assert get(page.url) == moments.said(*moments.of(life))
    with pytest.raises(urllib.error.URLError):
        get(page.url)


def test_no_page_unless_it_is_asked_for() -> None:
    life = moments.topology2()
    with web_page(life.resource, None) as page:
        page.show(run_state(expand(life.resource), life.seen()))
        assert page.url == ""


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(click.BadParameter, match=str(port)), web_page(moments.topology2().resource, port):
            pytest.fail("it was served")
