"""Where every session with ZooKeeper comes from: what it makes is allowed to whom it belongs, and to nobody else.

It retries for ever, and stays silent while a server is away.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.interfaces import IAsyncResult
from kazoo.security import ACL

from reprise.controller.zookeeper.access import client_options
from reprise.controller.zookeeper.handler import PollHandler
from reprise.controller.zookeeper.session import ZooKeeperSession

_log = logging.getLogger("reprise.zookeeper_client")
_log.setLevel(logging.ERROR)  # an outage would write two warnings a second; the callers log the state changes
_FOREVER = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": 0.5}
Allowed = Callable[[str], list[ACL]]
"""Who may do what with the znode of a path."""


class Client(KazooClient):
    """Like its base, which has one ACL for all that a session makes; here it follows from the path."""

    def __init__(self, *arguments: Any, allowed: Allowed | None = None, **options: Any) -> None:
        """`allowed` None: what it makes is open to everybody, as there are no users."""
        super().__init__(*arguments, **options)
        self._allowed = allowed

    def create_async(
        self, path: str, value: bytes = b"", acl: Sequence[ACL] | None = None, ephemeral: bool = False,
        sequence: bool = False, makepath: bool = False, include_data: bool = False,
    ) -> IAsyncResult[str]:  # fmt: skip
        acl = self.allowed(path) if acl is None else acl
        return super().create_async(path, value, acl, ephemeral, sequence, makepath, include_data)

    def ensure_path_async(self, path: str, acl: Sequence[ACL] | None = None) -> IAsyncResult[bool]:
        """Each folder with its own ACL.  `acl` is that of what is made below them (`makepath`), and not theirs."""
        return super().ensure_path_async(path, None if self._allowed is not None else acl)

    def transaction(self) -> TransactionRequest:
        return _Transaction(self)

    def allowed(self, path: str) -> list[ACL] | None:
        """The ACL of what this client makes there; None where there are no users."""
        return None if self._allowed is None else self._allowed(path)


class _Transaction(TransactionRequest):
    client: Client

    def create(
        self, path: str, value: bytes = b"", acl: Sequence[ACL] | None = None, ephemeral: bool = False,
        sequence: bool = False,
    ) -> None:  # fmt: skip
        super().create(path, value, self.client.allowed(path) if acl is None else acl, ephemeral, sequence)


def make_client(
    hosts: str, session_timeout_s: float, environment: Mapping[str, str] = os.environ
) -> ZooKeeperSession:
    """Not started yet; with the credentials of the environment.  For one that ends with a block: `connected`."""
    return ZooKeeperSession(kazoo_client(hosts, session_timeout_s, environment))


@contextmanager
def connected(
    hosts: str, session_timeout_s: float, environment: Mapping[str, str] = os.environ, start_s: float = 30.0
) -> Iterator[ZooKeeperSession]:
    """A session that ends with the block.  Raises SessionError when no server answers in `start_s` seconds."""
    session = make_client(hosts, session_timeout_s, environment)
    try:
        session.start(timeout=start_s)
        yield session
    finally:
        session.close()


def kazoo_client(hosts: str, session_timeout_s: float, environment: Mapping[str, str] = os.environ) -> Client:
    """What the session is made of."""
    return Client(
        hosts,
        timeout=session_timeout_s,
        handler=PollHandler(),
        connection_retry=dict(_FOREVER),
        command_retry=dict(_FOREVER),
        logger=_log,
        **client_options(environment),
    )
