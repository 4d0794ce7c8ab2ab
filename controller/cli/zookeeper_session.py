"""A session with ZooKeeper for the length of one command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from reprise.controller.cli.exits import NotRunningError
from reprise.controller.zookeeper.access import AUTH
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import ClientError, NoAuthError, SessionError
from reprise.controller.zookeeper.session import ZooKeeperSession

CONNECT_S = 10.0


@contextmanager
def zookeeper_session(hosts: str, access: Mapping[str, str] = os.environ) -> Iterator[ZooKeeperSession]:
    """A session; `access`: variables that say how to prove oneself, by default those of the process.

    NotRunningError: nobody answers, or no longer (then whether the last change was made is not known), or refuses."""
    begun = False
    try:
        with connected(hosts, CONNECT_S, access, CONNECT_S) as session:
            begun = True
            yield session
    except SessionError as error:
        if not begun:
            raise NotRunningError(f"ZooKeeper at {hosts} does not answer") from None
        raise NotRunningError(
            f"ZooKeeper at {hosts} has stopped answering; whether what was asked last is done is not known, ask again: "
            f"{error!r}"
        ) from error
    except NoAuthError:
        raise NotRunningError(
            f"ZooKeeper at {hosts} does not let this process do that; {AUTH} names who may"
        ) from None
    except ClientError as error:
        raise NotRunningError(f"ZooKeeper at {hosts} refuses: {error!r}") from error
