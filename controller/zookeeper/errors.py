"""The exceptions of the coordinator's adapters: one tree."""

from __future__ import annotations


class CoordinationError(Exception):
    """Anything that keeps the coordinator from doing its work."""


class RecordError(CoordinationError):
    """A znode that does not hold what it should: its path, the field, and what is wrong with it."""

    def __init__(self, path: str, field: str, reason: str) -> None:
        super().__init__(f"{path}: {field}: {reason}")
        self.path = path
        self.field = field
        self.reason = reason


class StaleError(CoordinationError):
    """Someone has written since the snapshot was read; the decision is void and nothing of it was done."""


class ClientError(CoordinationError):
    """ZooKeeper has not done what it was asked to do, or has not said so."""


class SessionError(ClientError):
    """No valid ZooKeeper session: whether something was written is not known. Read again."""


class RefusedError(ClientError):
    """ZooKeeper's answer is no; nothing was done."""


class NoNodeError(RefusedError):
    """There is no such znode."""


class NodeExistsError(RefusedError):
    """There is one already."""


class BadVersionError(RefusedError):
    """Somebody else has written the znode since."""


class NoAuthError(RefusedError):
    """This process may not do that there."""


class RolledBackError(RefusedError):
    """Another operation of the same transaction was refused."""


class TooLargeError(CoordinationError):
    """A request that ZooKeeper would answer by ending the connection; it was not sent."""

    def __init__(self, path: str, size: int, limit: int, parts: str = "") -> None:
        text = f"{path}: {size:,} bytes, and ZooKeeper takes {limit:,} at once"
        super().__init__(f"{text}{parts and f' ({parts})'}; nothing was written")
        self.path = path
        self.size = size


class MirrorError(CoordinationError):
    """A copy of records that cannot be written, read or put back; what it says names the place."""
