"""Who may be a node: one persistent record a pod, so that a pod that was given up can never come back.

A heartbeat says that somebody is there, not that it is still wanted.  The operator gives a pod up (its machine is
NotReady, the pod is deleted, its heartbeat is gone) while it may still live behind a network that is cut; when the
network is back, the pod would register again and run partitions that others have by then.  So a pod registers in one
transaction with a check of its membership record, and giving it up rewrites that record.  Whichever comes first, the
other one fails.
"""

from __future__ import annotations

import json
import time

FOLDER = "members"
JOINED_VERSION = 0
"""Version of a record that nobody has rewritten."""


def path_of(root: str, pod: str) -> str:
    """Of a pod's membership record."""
    return f"{root}/{FOLDER}/{pod}"


def joined() -> bytes:
    """The record of a pod that is welcome."""
    return json.dumps({"state": "joined", "time": time.time()}).encode()


def fenced(reason: str) -> bytes:
    """The record of a pod that was given up."""
    return json.dumps({"state": "fenced", "reason": reason, "time": time.time()}).encode()
