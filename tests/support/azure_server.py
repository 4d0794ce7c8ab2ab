"""A server that speaks as Azure Blob Storage does, conditions of uploads included: Azurite, a package of npm.

It is fetched when it is first asked for (130 MB), without the scripts of its packages, and kept in the user's cache.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from azure.storage.blob import BlobServiceClient

from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from tests.support.object_stores import BUCKET, answers
from tools.testbed.build import BuildError
from tools.testbed.cached import made_once
from tools.testbed.waiting import until

VERSION = "3.34.0"
PORT = 10000
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Account and key are Azurite's own, as Microsoft's documentation of it has them ("Well-known storage account and key")."""


def ensure() -> Path:
    """The program, fetched now if need be.  Raises BuildError."""
    folder = cache_dir() / f"azurite-{VERSION}"
    if not folder.is_dir():
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise BuildError("Azurite needs Node.js with npm, which is not there")
        with made_once(folder) as part:
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(part)]
            done = subprocess.run(
                [*command, f"azurite@{VERSION}"], capture_output=True, text=True, check=False, cwd=part
            )
            if done.returncode != 0:
                raise BuildError(f"azurite@{VERSION} cannot be fetched: {done.stderr[-1000:]}")
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def connection(address: str) -> str:
    """The connection string of the account at host:port."""
    parts = {
        "DefaultEndpointsProtocol": "http",
        "AccountName": ACCOUNT,
        "AccountKey": KEY,
        "BlobEndpoint": f"http://{address}/{ACCOUNT}",
    }
    return ";".join(f"{name}={value}" for name, value in parts.items()) + ";"


@contextmanager
def azure_server() -> Iterator[str]:
    """Start it with an empty container `tests`; its address."""
    program = ensure()
    prefix, reaper = ProcessReaper.with_prefix()
    try:
        host, data = f"{prefix}.1", reaper.scratch / "data"
        data.mkdir(parents=True)
        command = [str(shutil.which("node")), str(program), "--blobHost", host, "--blobPort", str(PORT)]
        command += ["--location", str(data), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        launch.spawn(command, reaper.environment(), reaper.scratch / "log")
        until(lambda: answers(f"http://{host}:{PORT}/{ACCOUNT}"), "Azurite", poll_s=0.1)
        with BlobServiceClient.from_connection_string(connection(f"{host}:{PORT}")) as client:
            client.create_container(BUCKET)
        yield f"{host}:{PORT}"
    finally:
        reaper.close()
