"""`reprise checkpoints`: the global checkpoints of a run, and whether their files and the records beside them are whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from reprise.controller.cli import exits
from reprise.controller.cli.render import for_programs, output_option, plain_console, plain_table
from reprise.controller.errors import ReportError
from reprise.controller.local.report.layout import layout_of
from reprise.spark_jobs.errors import CheckpointError, StoreError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.graphs import graph_on_record
from reprise.spark_jobs.state.ledger import began, on_record
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.state.revision import made_by_another
from reprise.spark_jobs.state.skips import SkipRecords
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import from_json

READERS: tuple[Callable[[str], object], ...] = (
    lambda location: began(Files(location)),
    lambda location: on_record(Files(location)),
    lambda location: made_by_another(location, 0, ""),
    graph_on_record,
    lambda location: SkipRecords(location, None).read(),
    lambda location: Release(location, 1.0, epoch=0),
)
"""What a driver reads beside checkpoints when it starts."""


@click.command("checkpoints")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of a run.")
@click.option("--location", help="Any checkpoint location: a path or an fsspec URL.")
@click.option(
    "--standby", multiple=True, help="A mirror, read where the location cannot be; may be repeated."
)
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Read every file, check its SHA-256."
)
@output_option
def command(
    out: Path | None, location: str | None, standby: tuple[str, ...], verify: bool, output: str
) -> None:
    """List complete global checkpoints, newest last; exit code 1 when one is damaged, or a record that a driver needs to
    start: of source ranges, of the stream's name, clock, graph and revision, and of what was skipped.

    \b
    Examples:
      reprise checkpoints --out out/eight
      reprise checkpoints --location s3://bucket/flights --no-verify -o json
      reprise checkpoints --location s3://first/flights --standby s3://second/flights
    """
    if (out is None) == (location is None):
        raise click.UsageError("give exactly one of --out and --location")
    store = CheckpointStore(location, standby) if location else _store(out or Path(), standby)
    found = [_entry(store, position, verify) for position in store.known()]
    damaged, unread = _records(store.location) if verify else ([], [])
    document = {"location": store.location, "checkpoints": found, "damagedRecords": damaged}
    if not for_programs(document, output):
        _table(store.location, found, output == "wide")
        for reason in damaged:
            click.secho(f"{reason}; no driver starts before it is put back from a copy", fg="red")
    for reason in unread:
        click.echo(f"records not looked at: {reason}", err=True)
    if damaged or any(entry["problem"] for entry in found):
        raise SystemExit(exits.NO)


def _store(out: Path, standby: tuple[str, ...]) -> CheckpointStore:
    try:
        resource = from_json((out / "topology.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise click.BadParameter(f"{out} holds no run (no topology.json)", param_hint="--out") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{out / 'topology.json'}: not a topology: {error}") from error
    return CheckpointStore(layout_of(out, resource).location, standby or resource.checkpoint.standby)


def _entry(store: CheckpointStore, position: int, verify: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"position": position, "files": 0, "bytes": 0, "offsets": {}, "problem": ""}
    try:
        manifest = store.manifest(position)
        entry["files"] = len(manifest.files)
        entry["bytes"] = manifest.state_bytes
        entry["offsets"] = dict(manifest.offsets)
        if verify:
            store.verify(position)
    except CheckpointError as error:
        entry["problem"] = str(error)
    return entry


def _records(location: str) -> tuple[list[str], list[str]]:
    """What is damaged among the records that a driver reads when it starts, and what cannot be read now."""
    damaged, unread = [], []
    for read in READERS:
        try:
            read(location)
        except StoreError as error:
            unread.append(str(error))
        except CheckpointError as error:
            damaged.append(str(error))
    return damaged, unread


def _table(location: str, found: list[dict[str, Any]], wide: bool) -> None:
    console = plain_console()
    console.print(f"{len(found)} complete checkpoints in {location}", highlight=False, soft_wrap=True)
    table = plain_table()
    for name in ("position", "files", "bytes"):
        table.add_column(name, justify="right")
    table.add_column("state")
    if wide:
        table.add_column("sources have been read up to")
    for entry in found:
        state = Text(entry["problem"], style="red") if entry["problem"] else Text("whole")
        offsets = [" ".join(f"{name}={offset}" for name, offset in entry["offsets"].items())] if wide else []
        table.add_row(str(entry["position"]), str(entry["files"]), f"{entry['bytes']:,}", state, *offsets)
    if found:
        console.print(table)
