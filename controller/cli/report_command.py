"""`reprise report`: everything that a bug report needs, in one file, without secrets."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from reprise.controller.cli.arguments import name_argument
from reprise.controller.cli.bundle import write_bundle
from reprise.controller.cli.exits import NotRunningError
from reprise.controller.cli.redact import Redactor, known_secrets
from reprise.controller.cli.render import plain_console, plain_table
from reprise.controller.cli.target import Address, Target, target_options
from reprise.controller.cli.target_kubernetes import PageError
from reprise.controller.cli.target_local import run_files
from reprise.controller.local.report.layout import is_running, read_record
from reprise.controller.status import plain, records
from reprise.controller.zookeeper.access import AUTH, SECRET_FILES

PACKAGES = (
    "reprise-streams",
    "pyspark",
    "pyarrow",
    "polars",
    "kazoo",
    "kopf",
    "kubernetes",
    "confluent-kafka",
    "highspy",
)
SHOWN_VARIABLES = ("REPRISE_", "SPARK_", "PYSPARK_", "JAVA_", "KUBERNETES_", "NO_COLOR", "LANG")


@click.command("report")
@name_argument
@target_options
@click.option(
    "--to", type=click.Path(path_type=Path), help="The file; by default named after topology and time."
)
def command(address: Address, to: Path | None) -> None:
    """One tar.gz for a bug report: status document, records, spec, report, logs, versions. Passwords, tokens, keys, digests
    and what this process knows as a secret are taken out; CONTENTS.txt in it lists every file.

    \b
    In it: status.json, records.json, spec.json, versions.json, environment.json; of a run also run.json, incident.json,
    plans.json and the ends of its logs; on Kubernetes also the resources, Events and pods.

    \b
    Examples:
      reprise report --out out/eight
      reprise report flights -n streams --to /tmp/flights.tar.gz
    """
    if address.out is not None and not is_running(read_record(address.out) or {}):
        name, files = address.out.name, run_files(address.out)
        if not files:
            raise click.BadParameter(f"{address.out} holds no run", param_hint="--out")
    else:
        with address.open() as target:
            name, files = target.resource().name, dict(_of_target(target))
    files |= {"versions.json": _dump(_versions()), "environment.json": _dump(_environment(os.environ))}
    now = time.time()
    path = to or Path(f"reprise-report-{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}.tar.gz")
    known = known_secrets(os.environ, _secret_files(os.environ)) | _referenced(files)
    entries = write_bundle(path, files, Redactor(known), now)
    table = plain_table()
    for title in ("file", "bytes", "redacted"):
        table.add_column(title, justify="left" if title == "file" else "right")
    for entry in entries:
        table.add_row(entry.name, str(entry.size), str(entry.redacted or ""))
    console = plain_console()
    console.print(table)
    console.print(f"written to {path}; look through it before you send it", highlight=False, soft_wrap=True)


def _of_target(target: Target) -> Iterator[tuple[str, bytes]]:
    """What can be had; what cannot is said in its place."""
    yield "spec.json", target.resource().document.encode()
    for name, make in (
        ("status", lambda: plain(target.document())),
        ("records", lambda: records(target.observation())),
    ):
        try:
            yield f"{name}.json", _dump(make())
        except (NotRunningError, PageError) as error:
            yield f"{name}.txt", f"not read: {error}\n".encode()
    yield from target.files().items()


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Only what steers Reprise and Spark; of the rest not even the names."""
    return {k: v for k, v in sorted(environment.items()) if k.startswith(SHOWN_VARIABLES)}


def _secret_files(environment: Mapping[str, str]) -> Iterator[bytes]:
    """What this process proves itself to ZooKeeper with."""
    if folder := environment.get(AUTH):
        for name in SECRET_FILES:
            path = Path(folder) / name
            with suppress(OSError, ValueError):
                if path.is_file():
                    yield path.read_bytes()


def _referenced(files: Mapping[str, bytes]) -> set[str]:
    """Values behind the `{env: NAME}` and `{file: PATH}` of the spec, where they can be followed here.  A damaged spec leads
    nowhere, and its bundle is wanted all the same."""
    found: set[str] = set()
    for name in ("spec.json", "topology.json"):
        if name in files:
            with suppress(ValueError, RecursionError):
                found |= set(_follow(json.loads(files[name])))
    return found


def _follow(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.keys() == {"env"} and str(value["env"]) in os.environ:
            yield os.environ[str(value["env"])]
        elif value.keys() == {"file"}:
            path = Path(str(value["file"]))
            with suppress(OSError, ValueError):  # it is not for who asks
                if path.is_file():
                    yield path.read_text(encoding="utf-8", errors="replace").strip()
        for entry in value.values():
            yield from _follow(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _follow(entry)


def _dump(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()
