"""`reprise savepoint`: a checkpoint that is kept under a name, for another topology to begin from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from reprise.controller.cli import exits
from reprise.controller.cli.options import DURATION
from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table
from reprise.controller.cli.target import Address, Target, target_options
from reprise.controller.local.report.layout import layout_of
from reprise.controller.utc import utc
from reprise.controller.zookeeper.savepoint_records import SavepointEntry, SavepointsRecord
from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.state.savepoints import NAME, SAVEPOINTS, Savepoints
from reprise.spark_jobs.topology import from_json

LOOK_S = 0.5


@click.command("savepoint")
@click.argument("words", nargs=-1, metavar="[NAME] [SAVEPOINT]")
@target_options
@click.option("--location", help="With --list and --delete: any checkpoint location, whatever runs there.")
@click.option("--list", "listing", is_flag=True, help="Say which savepoints there are.")
@click.option("--delete", is_flag=True, help="Remove SAVEPOINT; take back a wish for it that waits.")
@click.option("--no-wait", is_flag=True, help="Only ask for it.")
@click.option("--timeout", type=DURATION, default="10m", show_default=True, help="The longest time to wait.")
@output_option
def command(
    address: Address,
    words: tuple[str, ...],
    location: str | None,
    listing: bool,
    delete: bool,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Keep a complete checkpoint of a running topology under the name SAVEPOINT, until it is deleted.

    The driver takes a checkpoint that covers everything released so far and copies it: the state of each partition, and
    where each source goes on. The stream runs on meanwhile. A savepoint is whole or does not exist; nothing that happens
    later to the topology, its checkpoints or its nodes changes it. It is kept below the checkpoint location, in
    `savepoints/SAVEPOINT`, so deleting that folder deletes it.

    Another topology begins from it with `reprise run --from-savepoint`, or with `spec.checkpoint.startFrom`.

    \b
    Examples:
      reprise savepoint before-v2 --out out/words
      reprise savepoint --list --out out/words
      reprise savepoint before-v2 --delete --out out/words
      reprise savepoint flights before-v2 -n streams
      reprise savepoint --list --location s3://bucket/flights
    """
    if listing and delete:
        raise click.UsageError("give one of --list and --delete")
    address, name = _words(address, words, listing, location is not None)
    if location is None and address.out is not None and (listing or delete) and not _runs(address):
        location = _location(address.out)
    if location is not None:
        _stored(location, name, listing, delete, output)
        return
    with address.open() as target:
        if listing:
            _list(_of_driver(target), output)
            return
        wish = new_wish(name, delete)
        click.echo(target.savepoint(wish), err=True)
        if not no_wait:
            _wait(target, wish, timeout)


def new_wish(name: str, delete: bool = False) -> SavepointWish:
    """A wish of this moment."""
    return SavepointWish(name, f"{time.time_ns():020d}-{uuid4().hex[:8]}", delete)


def _words(address: Address, words: tuple[str, ...], listing: bool, apart: bool) -> tuple[Address, str]:
    """The topology on Kubernetes, where it is named, and the savepoint."""
    most = 0 if listing else 1
    if len(words) > most:
        address, words = replace(address, name=words[0]), words[1:]
    if len(words) != most or (apart and (address.name or address.out)):
        raise click.UsageError("give SAVEPOINT, or NAME and SAVEPOINT; with --list none, or NAME")
    name = words[0] if words else ""
    if name and not NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r}: use lower case letters, digits, hyphens and dots, at most 63", param_hint="SAVEPOINT"
        )
    return address, name


def _runs(address: Address) -> bool:
    try:
        with address.open() as target:
            return not target.is_over()
    except exits.NotRunningError:
        return False


def _location(out: Path) -> str:
    resource = from_json((out / "topology.json").read_text(encoding="utf-8"))
    return layout_of(out, resource).location


def _stored(location: str, name: str, listing: bool, delete: bool, output: str) -> None:
    """Where nothing runs, or whatever does: what is in the store."""
    savepoints = Savepoints(location)
    if delete:
        savepoints.delete(name)
        click.echo(f"savepoint {name} is deleted")
        return
    if not listing:
        raise click.UsageError(
            "only a running topology takes a savepoint: --location is for --list and --delete"
        )
    found = []
    for there in savepoints.names():
        try:
            one = savepoints.read(there)
            found.append(SavepointEntry(one.name, one.position, one.time, one.size_bytes, one.wish))
        except CheckpointError as error:
            click.echo(str(error), err=True)
    _list(found, output)


def _of_driver(target: Target) -> Iterable[SavepointEntry]:
    record = target.observation().savepoints
    if record is None:
        exits.fail("the driver has not said yet which savepoints there are", exits.NOT_RUNNING)
    return record.savepoints


def _list(found: Iterable[SavepointEntry], output: str) -> None:
    values: list[dict[str, Any]] = [
        {"name": s.name, "position": s.position, "time": s.time, "bytes": s.size_bytes} for s in found
    ]
    if for_programs({"savepoints": values}, output):
        return
    if not values:
        click.echo("no savepoints")
        return
    table = plain_table()
    table.add_column("savepoint")
    for column in ("after batch", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("asked for")
    for value in values:
        table.add_row(
            value["name"],
            str(value["position"]),
            f"{value['bytes']:,}",
            f"{utc(value['time']):%Y-%m-%d %H:%M:%S} UTC",
        )
    plain_console().print(table)


def _wait(target: Target, wish: SavepointWish, timeout_s: float) -> None:
    end, said = time.monotonic() + timeout_s, ""
    while True:
        record = target.observation().savepoints or SavepointsRecord()
        if record.has(wish.id):
            _over(target, wish, record)
            return
        if (why := record.waits.get(wish.id, "")) != said:
            said = why
            click.echo(why, err=True)
        if time.monotonic() > end:
            exits.fail(
                f"savepoint {wish.name} is not {'deleted' if wish.delete else 'taken'} after {timeout_s:g} s"
                f"{f': {said}' if said else ''}. The wish stands; --delete takes it back",
                exits.TIMED_OUT,
            )
        time.sleep(LOOK_S)


def _over(target: Target, wish: SavepointWish, record: SavepointsRecord) -> None:
    if refused := record.done.get(wish.id):
        exits.fail(refused, exits.NO)
    if wish.delete:
        click.echo(f"savepoint {wish.name} is deleted")
        return
    one = next((s for s in record.savepoints if s.name == wish.name), None)
    after = f" after batch {one.position} ({one.size_bytes:,} bytes)" if one else ""
    click.echo(f"savepoint {wish.name} is taken{after}: {_place(target)}/{SAVEPOINTS}/{wish.name}")


def _place(target: Target) -> str:
    out = getattr(target, "out", None)
    resource = target.resource()
    if out is not None:
        return layout_of(out, resource).location
    return resource.checkpoint.location or "(the checkpoint location)"
