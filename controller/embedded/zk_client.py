"""The ZooKeeper client of this package: retries for ever, and stays silent while a server is away."""

import logging

from kazoo.client import KazooClient

from controller.embedded.zk_access import client_options
from controller.embedded.zk_handler import PollHandler

_log = logging.getLogger("reprise.zookeeper_client")
_log.setLevel(logging.ERROR)  # an outage would write two warnings a second; the callers log the state changes
_FOREVER = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": 0.5}


def make_client(hosts: str, session_timeout_s: float) -> KazooClient:
    """Not started yet; with the credentials of the environment."""
    return KazooClient(
        hosts,
        timeout=session_timeout_s,
        handler=PollHandler(),
        connection_retry=dict(_FOREVER),
        command_retry=dict(_FOREVER),
        logger=_log,
        **client_options(),
    )
