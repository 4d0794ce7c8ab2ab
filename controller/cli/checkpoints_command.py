"""`reprise checkpoints`: the global checkpoints of a run, and whether their files and the records beside them are whole."""

from __future__ import annotations

import json
from contextlib import suppress
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
from reprise.spark_jobs.state.driver_records import EPOCHS
from reprise.spark_jobs.state.graphs import GRAPHS
from reprise.spark_jobs.state.ledger import RANGES
from reprise.spark_jobs.state.release import CLOCKS
from reprise.spark_jobs.state.revision import REVISIONS
from reprise.spark_jobs.state.skips import SKIPPED
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import from_json

RECORDS = ("", EPOCHS, RANGES, CLOCKS, REVISIONS, GRAPHS, SKIPPED)
"""Folders of a location with records beside checkpoints; the first one is the location itself."""


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
    """List complete global checkpoints, newest last; exit code 1 when one is damaged, or a record without which no driver
    starts: of source ranges, of revisions, of drivers.

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
    damaged = _damaged_records(store.location) if verify else {}
    document = {"location": store.location, "checkpoints": found, "damagedRecords": damaged}
    if not for_programs(document, output):
        _table(store.location, found, output == "wide")
        for name, reason in damaged.items():
            click.secho(f"{name} is damaged: {reason}; put it back from a copy", fg="red")
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


def _damaged_records(location: str) -> dict[str, str]:
    """Records that are not JSON, by their path; nothing where the location cannot be read now."""
    files, damaged = Files(location), {}
    with suppress(StoreError):
        for folder in RECORDS:
            for name in files.names(folder):
                path = f"{folder}/{name}".lstrip("/")
                try:
                    if name.endswith(".json"):
                        files.parsed(path, json.loads)
                except (ValueError, RecursionError) as error:
                    damaged[path] = f"not JSON: {error}"
    return damaged


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
