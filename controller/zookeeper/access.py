"""How this process proves itself to ZooKeeper and keeps others from reading along: from its environment, once.

Every process that speaks to ZooKeeper (operator, coordinator, driver, agents) needs the same, and gets it the way that a pod
gets secrets: files in a folder that a variable names.  Invariant: a variable that is set is obeyed or the process does not
start; there is no falling back to plain text, nor to nobody.

- REPRISE_ZK_TLS: folder with ca.crt, tls.crt and tls.key.  The server is checked against the first, by its name too, and the
  process shows the others.
- REPRISE_ZK_AUTH: folder with `key`, for the control plane: it is a user of its own and derives those of topologies
  (`users`).  With `former-key`, and with `digest` (the user:password that all had in common once), it also reaches what
  was made with these.
- or with `user` and `control-plane`, for a topology's own processes: its user:password, and the id of the control plane,
  which gets its rights on what they make.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.security import ACL

from reprise.controller.errors import ConfigError
from reprise.controller.private_file import write_private
from reprise.controller.zookeeper.users import Keys, User, allowed, root_above

TLS, AUTH = "REPRISE_ZK_TLS", "REPRISE_ZK_AUTH"
KEY, FORMER_KEY, DIGEST, USER, CONTROL_PLANE = "key", "former-key", "digest", "user", "control-plane"
SECRET_FILES = (KEY, FORMER_KEY, DIGEST, USER)


def client_options(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Arguments for `client.Client`.  ConfigError names the variable and the file that is not there, or not right."""
    found: dict[str, Any] = {}
    if folder := environment.get(TLS):
        ca, certificate, key = (_file(TLS, folder, name) for name in ("ca.crt", "tls.crt", "tls.key"))
        found |= {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": str(ca),
            "certfile": str(certificate),
            "keyfile": str(key),
        }
    if folder := environment.get(AUTH):
        found |= _as_control_plane(folder) if _is_control_plane(folder) else _as_topology(folder)
    return found


def keys_of(environment: Mapping[str, str] = os.environ) -> Keys | None:
    """What makes this process the control plane; None without users.  ConfigError as above, and for a topology's folder."""
    folder = environment.get(AUTH)
    return _keys(folder, KEY) if folder else None


def topology_files(keys: Keys, root: str) -> dict[str, str]:
    """What the folder of that topology's processes holds, by file name."""
    return {USER: keys.topology(root).login, CONTROL_PLANE: keys.control_plane.id}


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a server that this process has made: a key of its own, in files that only its user can read."""

    folder: Path
    """Does not exist yet."""
    tls: Path | None = None
    """As REPRISE_ZK_TLS names it; None for plain text."""

    def write(self) -> None:
        """Make the folder and the key.  The key is readable to this user alone from its first byte."""
        self._write(self.folder / "control-plane", {KEY: secrets.token_hex(32)})

    @property
    def keys(self) -> Keys:
        return _keys(str(self.folder / "control-plane"), KEY)

    def control_plane(self) -> dict[str, str]:
        """Variables of a process of the control plane: all of them, as its environment may have some for another server."""
        return self._variables("control-plane")

    def topology(self, root: str) -> dict[str, str]:
        """Variables of a process of this topology alone."""
        name = root.strip("/").replace("/", ".")
        if not (self.folder / name).exists():
            self._write(self.folder / name, topology_files(self.keys, root))
        return self._variables(name)

    def _variables(self, name: str) -> dict[str, str]:
        return {AUTH: str(self.folder / name), TLS: str(self.tls or "")}

    def _write(self, folder: Path, files: Mapping[str, str]) -> None:
        folder.mkdir(mode=0o700, parents=True)
        for name, text in files.items():
            write_private(folder / name, text)


def _is_control_plane(folder: str) -> bool:
    return not (Path(folder) / USER).is_file()


def _as_control_plane(folder: str) -> dict[str, Any]:
    keys = _keys(folder, KEY)
    users = [keys.control_plane]
    if (Path(folder) / FORMER_KEY).is_file():
        users.append(_keys(folder, FORMER_KEY).control_plane)
    if (Path(folder) / DIGEST).is_file():
        users.append(_user(folder, DIGEST))
    return {"auth_data": [("digest", user.login) for user in users], "allowed": keys.allowed}


def _as_topology(folder: str) -> dict[str, Any]:
    user = _user(folder, USER)
    control_plane = _file(AUTH, folder, CONTROL_PLANE).read_text(encoding="utf-8").strip()
    return {"auth_data": [("digest", user.login)], "allowed": _own(user, control_plane)}


def _own(user: User, control_plane: str) -> Callable[[str], list[ACL]]:
    """The ACL of what a topology's process makes: its own records.  It may make nothing elsewhere, nor would have
    rights there."""
    return lambda path: allowed(control_plane, user.id if root_above(path) == user.name else None)


def _keys(folder: str, name: str) -> Keys:
    text = _file(AUTH, folder, name).read_text(encoding="utf-8").strip()
    try:
        return Keys(text)
    except ConfigError as error:
        raise ConfigError(f"{AUTH}: {folder}/{name}: {error}") from None


def _user(folder: str, name: str) -> User:
    try:
        return User.of_login(_file(AUTH, folder, name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{AUTH}: {folder}/{name} {error}") from None


def _file(variable: str, folder: str, name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        raise ConfigError(f"{variable}: there is no file {path}")
    return path
