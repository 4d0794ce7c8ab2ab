"""`reprise status`: how a running topology stands, on one screen."""

from __future__ import annotations

import threading
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.live import Live

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.options import DURATION
from reprise.controller.cli.render import for_programs, output_option, plain_console
from reprise.controller.cli.resources_page import resources_page
from reprise.controller.cli.status_page import status_page
from reprise.controller.cli.target import Address, Target, target_options
from reprise.controller.cli.target_kubernetes import PageError
from reprise.controller.status import StatusDocument

PLAIN_HEIGHT = 200
"""Where there is no terminal: a file or a pipe takes more than a screen."""


@click.command("status")
@name_argument
@target_options
@output_option
@click.option("-w", "--watch", is_flag=True, help="Again and again until Ctrl-C, or until the run ends.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="With --watch.")
def command(address: Address, output: str, watch: bool, interval: float) -> None:
    """Nodes, queries with their state and lag, the current plan, and why each waiting query waits.

    A query is available when all of its partitions are at work and its output is close to the newest batch; recovering
    when everything it needs is placed but not there yet, or behind; waiting when something has no place.

    \b
    Examples:
      reprise status --out out/eight
      reprise status --out out/eight --watch
      reprise status --zk 10.0.0.5:2181 --root /reprise/default/flights -f examples/flights.yaml
      reprise status flights -n streams -o json | jq .queries.share
    """
    console = plain_console()
    with address.open() as target:
        if watch and output in ("table", "wide"):
            _watch(console, target, output == "wide", interval)
            return
        while True:
            found, why = _look(target)
            if not for_programs(found, output):
                console.print(_page(console, target, found, why, output == "wide"))
            if not watch or target.is_over():
                return
            threading.Event().wait(interval)


def _watch(console: Console, target: Target, wide: bool, interval: float) -> None:
    """On a screen of its own where there is one; the last page stays."""
    pause = threading.Event()
    last: RenderableType = ""
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                last = _page(console, target, *_look(target), wide)
                live.update(last, refresh=True)
                if target.is_over():
                    break
                pause.wait(interval)
    finally:
        if console.is_terminal:
            console.print(last)


def _look(target: Target) -> tuple[StatusDocument | dict[str, Any], str]:
    """The status document; or what the resources say, and why the controller's page could not be asked."""
    try:
        return target.document(), ""
    except PageError as error:
        return target.resources() or {}, str(error)


def _page(
    console: Console, target: Target, found: StatusDocument | dict[str, Any], why: str, wide: bool
) -> RenderableType:
    if isinstance(found, dict):
        return resources_page(found, why)
    height = console.size.height if console.is_terminal else PLAIN_HEIGHT
    return status_page(found, height - 1, target.actions(), wide)
