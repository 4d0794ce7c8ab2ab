"""`reprise records`: a topology's records in ZooKeeper, copied to a second site and put back."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import click

from reprise.controller.cli.options import DURATION

if TYPE_CHECKING:
    from reprise.controller.zookeeper.session import ZooKeeperSession


@click.group("records")
def command() -> None:
    """Copy a topology's records in ZooKeeper to a file at a second site, and put them back.

    \b
    Examples:
      reprise records save --zk 10.0.0.5:2181 --root /reprise/default/flights --to s3://second/flights.json --every 10s
      reprise records load --zk 10.1.0.5:2181 --root /reprise/default/flights --from /mnt/flights.json
    """


@command.command("save")
@click.option("--zk", required=True, help="Address of ZooKeeper.")
@click.option("--root", required=True, help="/reprise/<namespace>/<topology>.")
@click.option("--to", "location", required=True, help="A path or an fsspec URL; replaced as a whole.")
@click.option("--every", type=DURATION, help="Again and again; without it once.")
def save(zk: str, root: str, location: str, every: float | None) -> None:
    """Copy the records as they are now, once or until interrupted; then a copy that fails is made with the next turn."""
    from reprise.controller.cli.zookeeper_session import zookeeper_session
    from reprise.controller.zookeeper import mirror
    from reprise.controller.zookeeper.errors import CoordinationError

    def copied(client: ZooKeeperSession) -> None:
        copy = mirror.read(client, root)
        mirror.save(copy, location)
        click.echo(f"{len(copy.records)} records of {root} in {location}")

    with zookeeper_session(zk) as client:
        copied(client)  # what fails at first is a mistake, more likely than a server that is away
        while every is not None:
            threading.Event().wait(every)
            try:
                copied(client)
            except CoordinationError as error:
                click.echo(f"not copied, the copy before stands: {error}", err=True)


@command.command("load")
@click.option("--zk", required=True, help="Address of the other ZooKeeper.")
@click.option("--root", required=True, help="Where to put them; nothing may be there.")
@click.option(
    "--from",
    "locations",
    required=True,
    multiple=True,
    help="A copy; more of them: where the first cannot be read.",
)
def load(zk: str, root: str, locations: tuple[str, ...]) -> None:
    """Put the first copy that can be read into a ZooKeeper that has none of these records."""
    from reprise.controller.cli.zookeeper_session import zookeeper_session
    from reprise.controller.zookeeper import mirror

    copy = mirror.load(locations)
    with zookeeper_session(zk) as client:
        count = mirror.restore(client, root, copy)
    click.echo(f"{count} records of {copy.root} put at {root}; they are {time.time() - copy.time:.0f} s old")
