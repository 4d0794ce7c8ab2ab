"""Which version speaks: what driver, tasks and partition hosts say to each other is read by the same version alone.

Executors with another image than the driver's would stumble over fields that they do not know; or they would not, and
compute other batches.  So commands, reports and tasks carry `VERSION`, and who reads one of another version says both.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from reprise.spark_jobs.errors import VersionError

PROTOCOL = 46
"""Grows with each change of what the messages between driver and hosts hold (docs/messages.md)."""


def product() -> str:
    """The version of the installed package; `unknown` where it is run without being installed."""
    try:
        return version("reprise-streams")
    except PackageNotFoundError:
        return "unknown"


VERSION = f"{product()} (protocol {PROTOCOL})"


def require_same(theirs: object, who: str, other: str) -> None:
    """`theirs`: the version that a message carries, None for a sender that knew of none.  VersionError."""
    if theirs != VERSION:
        raise VersionError(
            f"{who} has Reprise {theirs or 'of an earlier version'}, {other} has {VERSION}: driver and executors must run "
            "the same image"
        )
