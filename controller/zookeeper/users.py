"""Who may read and change which znodes: one user for each topology, one for the control plane, nobody else.

Everybody's password is derived from one key (HMAC-SHA-256), which the control plane alone has; so no list of passwords is
kept anywhere, and who knows the password of one topology knows that of no other.  Users are of ZooKeeper's `digest` scheme,
which needs nothing configured at the server.

Invariant: a znode below a topology's root is open to the user of that topology and to the control plane, every other znode
to the control plane alone.  That includes the folders above the roots: who may create there could take another topology's
place before it comes.  A topology's user may not change who is allowed what (ZooKeeper's `admin`).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from dataclasses import dataclass, field
from threading import Event

from kazoo.security import ACL, make_acl, make_digest_acl_credential

from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper.errors import ClientError, NoAuthError, NoNodeError
from reprise.controller.zookeeper.session import ZooKeeperSession

log = logging.getLogger("reprise.zookeeper_users")
CONTROL_PLANE = "reprise"
LEAST_KEY = 32
"""Characters.  A topology's processes have a hash that was made of the key, and may try keys for as long as they like."""
_ROOT = re.compile(r"(/reprise/[^/]+/[^/]+)(/.*)?")
_OPEN = ("/", "/zookeeper", "/zookeeper/quota")
"""Znodes that a new server has, and in which everybody may make others."""


def root_above(path: str) -> str | None:
    """The topology's root, /reprise/<namespace>/<topology>, that `path` is, or is below; None for any other path."""
    found = _ROOT.fullmatch(path)
    return found and found.group(1)


@dataclass(frozen=True, slots=True)
class User:
    """A user of ZooKeeper's digest scheme."""

    name: str
    password: str = field(repr=False)

    @property
    def login(self) -> str:
        """What a session shows: user:password."""
        return f"{self.name}:{self.password}"

    @property
    def id(self) -> str:
        """What an ACL says: user and hash, which opens nothing."""
        return str(make_digest_acl_credential(self.name, self.password))

    @staticmethod
    def of_login(text: str) -> User:
        """ValueError when it is not written user:password."""
        name, _, password = text.strip().partition(":")
        if not name or not password:
            raise ValueError("is not written user:password")
        return User(name, password)


@dataclass(frozen=True, slots=True)
class Keys:
    """The control plane's: every user there is."""

    key: str = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < LEAST_KEY:
            raise ConfigError(
                f"the key for ZooKeeper's users has {len(self.key)} characters, fewer than {LEAST_KEY}"
            )

    @property
    def control_plane(self) -> User:
        return self._user(CONTROL_PLANE)

    def topology(self, root: str) -> User:
        """The user of the topology whose records are below this root; it has the root's name."""
        if root_above(root) != root:
            raise ConfigError(f"root: {root!r} is not written /reprise/<namespace>/<topology>")
        return self._user(root)

    def _user(self, name: str) -> User:
        return User(name, hmac.new(self.key.encode(), name.encode(), hashlib.sha256).hexdigest())

    def allowed(self, path: str) -> list[ACL]:
        """Who may do what with this znode."""
        root = root_above(path)
        return allowed(self.control_plane.id, None if root is None else self.topology(root).id)


def allowed(control_plane: str, topology: str | None) -> list[ACL]:
    """The ACL that these ids make."""
    found = [make_acl("digest", control_plane, all=True)]
    if topology is not None:
        found.append(make_acl("digest", topology, read=True, write=True, create=True, delete=True))
    return found


def close_server(client: ZooKeeperSession, keys: Keys) -> list[str]:
    """Let nobody else make anything on a server that is this control plane's own.  The names at its top, without ZooKeeper's
    own: on a server that is new there are none, else somebody was faster."""
    for path in _OPEN:
        client.set_acls(path, keys.allowed(path))
    return sorted(set(client.get_children("/")) - {"zookeeper"})


def keep_server_closed(client: ZooKeeperSession, keys: Keys, ending: Event, again_s: float = 60.0) -> None:
    """Do this for a server of this control plane's own until `ending`, also for one that has lost its data since; what is
    there already stays.  A server that somebody else has closed is said, and asked again."""
    told = False
    while not ending.is_set():
        try:
            closed = _comparable(client.get_acls_async("/").get())
            if closed != _comparable(keys.allowed("/")):
                for path in reversed(_OPEN):  # the top is the last, so what is interrupted is begun again
                    client.set_acls(path, keys.allowed(path))
                log.info("event=server-closed")
            told, wait = False, again_s
        except NoAuthError:
            if not told:
                log.error("event=server-not-closed reason='the key that has closed it is another one'")
            told, wait = True, again_s
        except ClientError:  # it does not answer now
            wait = min(1.0, again_s)
        ending.wait(wait)


def is_closed(client: ZooKeeperSession, root: str, keys: Keys) -> bool:
    """Whether the records below `root`, and the folders above it, are as these keys say.  Of the records the topmost tells.
    NoNodeError where there are none."""
    asked = {path: client.get_acls_async(path) for path in (*_above(root), root)}
    return all(_comparable(answer.get()) == _comparable(keys.allowed(path)) for path, answer in asked.items())


def close(client: ZooKeeperSession, root: str, keys: Keys) -> int:
    """Give records that were made without users, or with other keys, and the folders above them, to the users of these; how
    many znodes.

    The topmost znode of the records is the last, so what is interrupted is begun again.  Who reads or writes there as
    somebody else is shut out with this."""
    count = sum(_give(client, path, keys) for path in _above(root))
    early = _names(client, root)
    count += sum(_give_all(client, f"{root}/{name}", keys) for name in early)
    count += _give(client, root, keys)
    late = set(_names(client, root)) - set(early)  # made by others before the root was closed to them
    return count + sum(_give_all(client, f"{root}/{name}", keys) for name in sorted(late))


def _give(client: ZooKeeperSession, path: str, keys: Keys) -> int:
    try:
        client.set_acls(path, keys.allowed(path))
    except NoNodeError:
        return 0  # removed meanwhile
    return 1


def _give_all(client: ZooKeeperSession, path: str, keys: Keys) -> int:
    """A folder before what is in it is listed: then nobody else can add to it unseen."""
    return _give(client, path, keys) + sum(
        _give_all(client, f"{path}/{name}", keys) for name in _names(client, path)
    )


def _above(root: str) -> list[str]:
    """/reprise and /reprise/<namespace>."""
    namespace = root.rpartition("/")[0]
    return [namespace.rpartition("/")[0], namespace]


def _names(client: ZooKeeperSession, path: str) -> list[str]:
    try:
        return client.get_children(path)
    except NoNodeError:
        return []


def _comparable(acls: list[ACL]) -> set[tuple[str, str, int]]:
    return {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls}
