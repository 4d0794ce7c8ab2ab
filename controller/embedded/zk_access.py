"""How this process proves itself to ZooKeeper and keeps others from reading along: from its environment, once.

Every process that speaks to ZooKeeper (operator, driver, agents) needs the same, and gets it the way that a pod gets
secrets: files in a folder that a variable names.  Invariant: a variable that is set is obeyed or the process does not start;
there is no falling back to plain text.

- REPRISE_ZK_TLS: folder with ca.crt, tls.crt and tls.key.  The server is checked against the first, the process shows the
  others.
- REPRISE_ZK_AUTH: folder with `digest`, the text user:password.  Znodes are then made for that user alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.security import CREATOR_ALL_ACL

from controller.embedded.errors import ConfigError

TLS, AUTH = "REPRISE_ZK_TLS", "REPRISE_ZK_AUTH"


def client_options(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Arguments for KazooClient.  ConfigError names the variable and the file that is not there."""
    found: dict[str, Any] = {}
    if folder := environment.get(TLS):
        ca, certificate, key = (_file(TLS, folder, name) for name in ("ca.crt", "tls.crt", "tls.key"))
        found |= {
            "use_ssl": True,
            "verify_certs": True,
            "ca": str(ca),
            "certfile": str(certificate),
            "keyfile": str(key),
        }
    if folder := environment.get(AUTH):
        digest = _file(AUTH, folder, "digest").read_text(encoding="utf-8").strip()
        if not all(digest.partition(":")):
            raise ConfigError(f"{AUTH}: {folder}/digest is not written user:password")
        found |= {"auth_data": [("digest", digest)], "default_acl": CREATOR_ALL_ACL}
    return found


def _file(variable: str, folder: str, name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        raise ConfigError(f"{variable}: there is no file {path}")
    return path
