"""`--web`: the page of a run, on the loopback address, for as long as the run lasts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

import click

from reprise.controller.status.query_state import RunState
from reprise.controller.web import Board, WebError, WebServer
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology

PORT = 8088
HOST = "127.0.0.1"

web_option = click.option(
    "--web", type=click.IntRange(0, 65535), is_flag=False, flag_value=PORT, metavar="[PORT]",
    help=f"Serve a page about the run on {HOST} (default port {PORT}; 0: any that is free).",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WebPage:
    """`url` is empty where no page was asked for; `show` is then told in vain."""

    url: str
    show: Callable[[RunState], None]
    follow: Callable[[StreamTopology], None]
    """Told of the topology that runs from now on, where it is another."""


@contextlib.contextmanager
def web_page(resource: StreamTopology, port: int | None) -> Iterator[WebPage]:
    """`port` None: no page.  A usage error when the port cannot be had."""
    if port is None:
        yield WebPage("", lambda _: None, lambda _: None)
        return
    board = Board()
    board.show(resource.namespace, resource.name, resource, Observation(time.time(), connected=True))
    server = WebServer(board, HOST, port)
    try:
        server.start()
    except WebError as error:
        raise click.BadParameter(str(error), param_hint="--web") from error

    now = [resource]

    def follow(other: StreamTopology) -> None:
        now[0] = other

    def show(state: RunState) -> None:
        board.show(resource.namespace, resource.name, now[0], state.observation)

    try:
        yield WebPage(f"{server.url}/t/{quote(resource.namespace)}/{quote(resource.name)}", show, follow)
    finally:
        server.stop()
