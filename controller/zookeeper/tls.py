"""A ZooKeeper server that speaks TLS alone, out of the three files that a Secret of type kubernetes.io/tls has.

pyspark's jars hold ZooKeeper's Netty transport and all that it needs.  Server and client show certificates to each other,
and each asks whether the authority in `ca.crt` has signed the other's; the client asks for the server's name as well.  The
server does not ask for a client's: pods have no names that last.
"""

from __future__ import annotations

import re
from pathlib import Path

from reprise.controller.errors import ConfigError
from reprise.controller.private_file import write_private

_FOREIGN_KEY = re.compile(r"-----BEGIN (?:RSA|EC|DSA) PRIVATE KEY-----")


def key_store(folder: Path, target: Path) -> None:
    """Write key and certificate as the one file that ZooKeeper reads, for this user alone.  ConfigError names the file of
    `folder` that is not there, or is not as ZooKeeper reads it."""
    parts = []
    for name in ("tls.key", "tls.crt", "ca.crt"):
        try:
            parts.append((folder / name).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{folder / name}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{folder / name}: no text; ZooKeeper reads PEM alone") from None
    if _FOREIGN_KEY.search(parts[0]):
        raise ConfigError(
            f"{folder / 'tls.key'}: ZooKeeper reads keys in PKCS #8 alone (openssl pkcs8 -topk8 -nodes)"
        )
    target.unlink(missing_ok=True)
    write_private(target, "\n".join(parts[:2]))


def client_lines(folder: Path, store: Path, host: str, port: int) -> list[str]:
    """Lines of zoo.cfg, in place of clientPort and clientPortAddress; `store` as `key_store` has made it."""
    return [
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"secureClientPort={port}",
        f"secureClientPortAddress={host}",
        *_stores("ssl", folder, store),
        "ssl.hostnameVerification=false",
    ]


def peer_lines(folder: Path, store: Path) -> list[str]:
    """Lines of zoo.cfg for servers that speak TLS among themselves; each asks for the other's name."""
    return ["sslQuorum=true", *_stores("ssl.quorum", folder, store), "ssl.quorum.hostnameVerification=true"]


def _stores(prefix: str, folder: Path, store: Path) -> list[str]:
    return [
        f"{prefix}.clientAuth=need",
        f"{prefix}.protocol=TLSv1.3",
        f"{prefix}.enabledProtocols=TLSv1.3,TLSv1.2",
        f"{prefix}.keyStore.location={store}",
        f"{prefix}.keyStore.type=PEM",
        f"{prefix}.trustStore.location={folder / 'ca.crt'}",
        f"{prefix}.trustStore.type=PEM",
    ]
