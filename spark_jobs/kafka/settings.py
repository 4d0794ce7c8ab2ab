"""What connects a client to its brokers: addresses, every setting of librdkafka, and secrets by reference.

A resource is stored, shown and sent to executors as it is, so it must not hold a secret: a secret is a reference,
`{env: NAME}` or `{file: PATH}`, which each process follows when it opens a client.  Invariants: a resolved secret is never
part of a message (`Settings.clean`), and a setting that librdkafka does not know is refused when the resource is loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from reprise.spark_jobs.errors import DataPlaneError, SpecError

log = logging.getLogger("reprise.kafka")

SECRETS = frozenset(
    {
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "basic.auth.user.info",  # these are of a schema registry
        "bearer.auth.token",
        "bearer.auth.client.secret",
    }
)
"""Settings that may only be given by reference."""

CONSUMER_OWN = {
    "bootstrap.servers": "give `brokers`",
    "group.id": "give `group`; offsets are kept with the checkpoints",
    "enable.auto.commit": "offsets are committed with checkpoints",
    "enable.auto.offset.store": "offsets are committed with checkpoints",
    "auto.offset.reset": "give `start` and `on_offsets_lost`",
    "enable.partition.eof": "the source needs it",
}
PRODUCER_OWN = {
    "bootstrap.servers": "give `brokers`",
    "transactional.id": "it names the output partition; give `prefix` to tell clusters apart",
    "enable.idempotence": "transactions need it",
    "delivery.report.only.error": "reports of messages that were delivered are not used",
}


_SHARED = (
    "security.",
    "sasl.",
    "ssl.",
    "socket.",
    "broker.",
    "client.",
    "enable.ssl",
    "bootstrap.",
    "logger",
)


def shared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that any client of the same brokers takes: addresses, security, sockets."""
    return {name: value for name, value in settings.items() if name.startswith(_SHARED)}


class SecretError(DataPlaneError):
    """A secret whose reference leads nowhere in this process; names the reference and never the value."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of librdkafka as in the resource: text, or a reference."""

    values: Mapping[str, str | Mapping[str, str]]
    defaults: Mapping[str, str | int] = field(default_factory=dict)

    def resolve(self, brokers: str, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a client is made with; `fixed` wins over the resource.  SecretError for a reference that leads nowhere."""
        found = self.followed()
        given = {"bootstrap.servers": brokers, "logger": log, "log.connection.close": False}
        return {**given, **self.defaults, **found, **(fixed or {})}

    def followed(self) -> dict[str, str]:
        """All settings as text.  SecretError for a reference that leads nowhere."""
        return {name: _follow(name, value) for name, value in self.values.items()}

    def clean(self, text: object) -> str:
        """A message without any of the secrets."""
        words = str(text)
        for name, value in self.values.items():
            if isinstance(value, Mapping):
                try:
                    words = words.replace(_follow(name, value), "(secret)")
                except SecretError:
                    continue
        return words


def _follow(name: str, value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return value
    try:
        found = os.environ[value["env"]] if "env" in value else _content(value["file"])
    except (KeyError, OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__ if isinstance(error, UnicodeDecodeError) else error
        raise SecretError(f"setting {name}: its reference {dict(value)} leads nowhere: {reason}") from None
    if not found:
        raise SecretError(f"setting {name}: its reference {dict(value)} leads to an empty value")
    return found


def _content(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").rstrip("\n")


def parse_settings(
    value: Any, field_name: str, own: Mapping[str, str], defaults: Mapping[str, str | int], producer: bool
) -> Settings:
    """Checked settings of one client.  SpecError names a setting that is unknown, impossible, reserved or a bare secret."""
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        raise SpecError(
            field_name, f"expected a mapping of librdkafka settings, found {type(value).__name__}"
        )
    checked: dict[str, str | Mapping[str, str]] = {}
    for name, given in value.items():
        path = f"{field_name}.{name}"
        if name in own:
            raise SpecError(path, f"is set by Reprise: {own[name]}")
        checked[name] = value_of(name, given, path)
        _ask_librdkafka(name, checked[name], path, producer)
    return Settings(checked, defaults)


def value_of(name: str, given: Any, path: str) -> str | Mapping[str, str]:
    """One setting.  SpecError for a secret that is not a reference, and for what is no setting."""
    if isinstance(given, Mapping):
        if (
            len(given) != 1
            or not set(given) <= {"env", "file"}
            or not all(isinstance(v, str) for v in given.values())
        ):
            raise SpecError(path, "a reference is {env: NAME} or {file: PATH}")
        return dict(given)
    if name in SECRETS:
        raise SpecError(
            path, "is a secret: write a reference, {env: NAME} or {file: PATH}, and not the value"
        )
    if isinstance(given, bool):
        return "true" if given else "false"
    if not isinstance(given, str | int | float):
        raise SpecError(path, f"expected text, a number or a reference, found {type(given).__name__}")
    return str(given)


def _ask_librdkafka(name: str, value: str | Mapping[str, str], path: str, producer: bool) -> None:
    text = value if isinstance(value, str) else "reference"
    if (reason := _refusal(name, text, producer)) and (isinstance(value, str) or "No such" in reason):
        raise SpecError(path, reason)


@lru_cache(maxsize=256)
def _refusal(name: str, value: str, producer: bool) -> str | None:
    """Why librdkafka refuses one setting by itself; None if it takes it, or only other settings are missing beside it."""
    alone = {name: value, "logger": log, "log_level": 0}
    try:
        if producer:
            Producer(alone)
        else:
            Consumer({"group.id": "reprise-check", **alone}).close()
    except KafkaException as error:
        text = error.args[0].str().strip()
        return None if text.startswith("Failed to create") else f"librdkafka refuses it: {text}"
    except (TypeError, ValueError) as error:
        return f"the client refuses it: {error}"
    return None


def parse_clusters(value: Any, field_name: str = "brokers") -> tuple[str, ...]:
    """Addresses of one cluster (`host:port,host:port`), or of several, the primary first.  SpecError."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found or not all(isinstance(c, str) and c for c in found):
        raise SpecError(
            field_name, "expected host:port,host:port of a cluster, or a list of clusters, the primary first"
        )
    return tuple(found)
