"""An S3 server of one's own: SeaweedFS as the package index has it, one process with a folder, on an address of its own.

It is a server that people run, with conditional writes, multipart uploads, checked signatures and listings, and no model of
one.  What goes wrong on the way to it is made by `tests.support.faulty_store`.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from tools.testbed.waiting import until

if TYPE_CHECKING:
    from s3fs import S3FileSystem

ACCESS_KEY, SECRET_KEY = "AKIDTESTTESTTESTTEST", "a-secret-of-tests/+0123456789"
NEXT_KEY, NEXT_SECRET = "AKIDNEXTNEXTNEXTNEXT", "the-next-secret-of-tests/+0123456789"
"""Two pairs of the same user, of which the second replaces the first when that has run out."""
BUCKET = "tests"
REGION = "us-east-1"
_PORTS = (
    "s3.port",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)
"""All that it listens at; of the others than the first nobody else is told."""
PORTS = len(_PORTS)
_FIRST_PORT, _SERVERS = 10000, 2500
SOCKETS = Path("/tmp")
"""Where its parts listen for each other besides, whatever it is told, in files that are named by port alone: servers with
the same ports share one store, and the files stay when it ends."""
START_S = 120.0


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that is up, with an empty bucket."""

    address: str

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def client(self) -> S3FileSystem:
        """One that goes to the server itself, whatever is configured, and keeps no listings."""
        from s3fs import S3FileSystem

        return S3FileSystem(
            key=ACCESS_KEY,
            secret=SECRET_KEY,
            endpoint_url=self.url,
            client_kwargs={"region_name": REGION},
            config_kwargs={},
            use_listings_cache=False,
            skip_instance_cache=True,
        )


def client_environment(url: str) -> dict[str, str]:
    """Variables that AWS's own clients read, and s3fs through them."""
    return {
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start it, and end it with all that it holds, also where this process is killed."""
    prefix, reaper = ProcessReaper.with_prefix()
    ports = _ports(prefix)
    try:
        host, folder = f"{prefix}.1", reaper.scratch
        _configure(folder)
        command = [str(Path(sys.executable).parent / "weed"), "-logtostderr", "server"]
        command += [f"-dir={folder / 'data'}", f"-ip={host}", f"-ip.bind={host}", "-filer", "-s3"]
        command += [f"-{name}={port}" for name, port in ports.items()]
        command += [f"-{part}.localSocket={folder / part}.sock" for part in ("filer", "s3")]
        command += [
            f"-s3.config={folder / 's3.json'}",
            "-s3.autoCreateBucket=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        command += [
            "-iam=false",
            "-s3.iam=false",
            "-volume.max=50",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
        ]
        launch.spawn(command, reaper.environment(), folder / "log")
        server = S3Server(f"{host}:{ports['s3.port']}")
        until(lambda: answers(server.url), f"the S3 server ({folder / 'log'})", START_S, poll_s=0.1)
        _make_bucket(server)
        yield server
    finally:
        reaper.close()
        for port in ports.values():
            for socket in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)


def _ports(prefix: str) -> dict[str, int]:
    """Of a prefix of addresses alone, among the first `_SERVERS` of them."""
    _, x, y = map(int, prefix.split("."))
    first = _FIRST_PORT + (x * 254 + y - 1) % _SERVERS * PORTS
    return {name: first + i for i, name in enumerate(_PORTS)}


def answers(url: str) -> bool:
    """Whether something speaks HTTP there, whatever it says."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def _configure(folder: Path) -> None:
    (folder / "data").mkdir()
    pairs = [
        {"accessKey": key, "secretKey": secret}
        for key, secret in ((ACCESS_KEY, SECRET_KEY), (NEXT_KEY, NEXT_SECRET))
    ]
    who = {"name": "tests", "credentials": pairs, "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [who]}))


def _make_bucket(server: S3Server) -> None:
    client = server.client()

    def made() -> bool:  # the server answers before all its parts have found each other
        try:
            client.mkdir(BUCKET)
            client.pipe_file(f"{BUCKET}/first", b"first")
        except FileExistsError:
            client.pipe_file(f"{BUCKET}/first", b"first")
        except OSError:
            return False
        return bool(client.cat_file(f"{BUCKET}/first") == b"first")

    until(made, "a bucket", START_S, poll_s=0.2)
