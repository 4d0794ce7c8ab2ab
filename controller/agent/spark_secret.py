"""The secret that Spark's processes of one cluster share: without it nobody is answered, and what they say is encrypted.

Spark's RPC accepts serialised Java objects, which is to say code, from whoever reaches a port; on a machine with several
users loopback is no boundary.  Each cluster makes a secret of its own when it starts.

Invariant: the secret is in no command line, as everybody on the machine can read these.  The master and agents, which
start executors, find it in their environment; drivers find it in a file that only their user can read.

The cipher is AES/GCM, so that what was changed on its way is refused; with AES/CTR, Spark's default, it would not be.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from reprise.controller.private_file import write_private

VARIABLE = "_SPARK_AUTH_SECRET"
"""Spark's own name for it (SecurityManager.ENV_AUTH_SECRET)."""
_PROPERTY = "spark.authenticate.secret"
AUTHENTICATION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
"""For every process of an application, here and on Kubernetes, where Spark makes the secret itself."""


@dataclass(frozen=True, slots=True)
class SparkSecret:
    """The secret that the processes of one cluster share."""

    properties: Path
    """The file for drivers: `--properties-file` of spark-submit."""
    value: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def write(self) -> None:
        """Make the file, readable to this user alone from its first byte."""
        lines = [f"{name} {value}" for name, value in (AUTHENTICATION | {_PROPERTY: self.value}).items()]
        write_private(self.properties, "\n".join(lines) + "\n")

    def daemon_options(self) -> list[str]:
        """Options of the JVM of a master; nothing secret."""
        return [f"-D{name}={value}" for name, value in AUTHENTICATION.items()]

    def daemon_environment(self) -> dict[str, str]:
        """What its environment must hold."""
        return {VARIABLE: self.value}

    def submit_arguments(self, *more: str) -> list[str]:
        """Arguments of spark-submit for a driver; `more`: further options."""
        return ["--properties-file", str(self.properties), *more, "pyspark-shell"]
