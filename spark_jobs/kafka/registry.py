"""Schemas by id from a schema registry: for messages that begin with a zero byte and the id (Confluent's wire format).

A registry that asks nobody who he is needs one GET.  One that does is asked by the client that confluent-kafka brings, which
knows passwords, tokens and certificates, and wants eleven packages more: it is imported where `config` is given.  Both say
the same of what goes wrong: a schema that the registry itself says is not there makes its message bad, and everything else
holds the batch back, a 404 of a wrong path or of a gateway before the registry too.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import fastavro

from reprise.spark_jobs.errors import DecodeError, SourceError, SpecError
from reprise.spark_jobs.kafka.settings import SecretError, Settings, value_of

_MAGIC = 0
_NO_SCHEMA = 40403
"""What a registry says of an id that it does not know, in `error_code` (Confluent's API reference, GET /schemas/ids)."""
_TIMEOUT_S = 5.0
NAMES = frozenset(
    {
        *(
            "basic.auth.user.info",
            "ssl.ca.location",
            "ssl.certificate.location",
            "ssl.key.location",
            "ssl.key.password",
        ),
        *("bearer.auth.credentials.source", "bearer.auth.token", "bearer.auth.logical.cluster"),
        *(
            "bearer.auth.identity.pool.id",
            "bearer.auth.client.id",
            "bearer.auth.client.secret",
            "bearer.auth.scope",
        ),
        "bearer.auth.issuer.endpoint.url",
    }
)
"""Settings of the client that say who asks, and whom to believe."""


class Registry:
    """Finds the schema of a message; each id is asked for once."""

    def __init__(self, url: str, fetch: Callable[[int], str] | None = None) -> None:
        self._fetch = fetch or _Get(url)
        self._known: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, value: bytes) -> tuple[Any, int]:
        """DecodeError for a message without such a head; SourceError while the registry does not answer."""
        if len(value) < 5 or value[0] != _MAGIC:
            raise DecodeError("does not begin with the id of a schema in the registry")
        number = int.from_bytes(value[1:5], "big")
        with self._lock:
            if number not in self._known:
                self._known[number] = self._parsed(number)
            return self._known[number], 5

    def _parsed(self, number: int) -> Any:
        text = self._fetch(number)
        try:
            return fastavro.parse_schema(json.loads(text))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise DecodeError(f"schema {number} of the registry cannot be used: {error}") from None


def _missing(number: int) -> DecodeError:
    return DecodeError(f"the schema registry has no schema {number}")


class _Get:
    """Asks without saying who asks."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __call__(self, number: int) -> str:
        address = f"{self._url}/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                return str(json.load(answer)["schema"])
        except urllib.error.HTTPError as error:
            if _code_of(error) == _NO_SCHEMA:
                raise _missing(number) from None
            raise SourceError(f"schema registry {self._url} answers {error.code} {error.reason}") from None
        except OSError as error:
            raise SourceError(f"schema registry {self._url} does not answer: {error}") from None
        except (ValueError, KeyError, TypeError) as error:  # a page of a gateway, say
            raise SourceError(
                f"schema registry {self._url} answers with something that holds no schema: {error!r}"
            ) from None


def _code_of(error: urllib.error.HTTPError) -> Any:
    """The registry's own; None where the answer is not of one."""
    try:
        found = json.load(error)
    except (OSError, ValueError):
        return None
    return found.get("error_code") if isinstance(found, dict) else None


class Asking:
    """Asks by the client of confluent-kafka, with `settings` of it."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url, self._settings = url.rstrip("/"), settings
        self._client: Any = None

    def __call__(self, number: int) -> str:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            if self._client is None:  # secrets are followed where they are needed, and may come later
                self._client = _client(self._url, self._settings)
            schema = self._client.get_schema(number)
        except SecretError as error:
            raise SourceError(f"schema registry {self._url} cannot be asked: {error}") from None
        except SchemaRegistryError as error:
            if error.error_code == _NO_SCHEMA:
                raise _missing(number) from None
            self._client = None  # a secret that was refused may be another one by the next attempt
            said = self._settings.clean(error.error_message)
            raise SourceError(
                f"schema registry {self._url} answers {error.http_status_code} {said}"
            ) from None
        except Exception as error:  # of its HTTP client, which has errors of its own
            self._client = None
            raise SourceError(
                f"schema registry {self._url} does not answer: {self._settings.clean(repr(error))}"
            ) from None
        if not schema.schema_str:  # a page of a gateway, say, which the client would keep
            self._client = None
            raise SourceError(f"schema registry {self._url} answers with something that holds no schema")
        if schema.schema_type != "AVRO":
            raise DecodeError(f"schema {number} of the registry cannot be used: it is {schema.schema_type}")
        return str(schema.schema_str)


def _client(url: str, settings: Settings) -> Any:
    """It tries once: the batch waits, and is tried again."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": url, "timeout": _TIMEOUT_S, "max.retries": 0, **settings.followed()})


def make_registry(url: Any, config: Any) -> Registry:
    """The registry of a resource.  SpecError names the parameter."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise SpecError("avro.registry", f"expected a URL, found {url!r}")
    if config is None:
        return Registry(url)
    if not isinstance(config, Mapping) or not config:
        raise SpecError("avro.config", "expected a mapping of settings of the registry's client")
    for name in config:
        if name not in NAMES:
            raise SpecError(
                f"avro.config.{name}", f"is no setting that is taken; known: {', '.join(sorted(NAMES))}"
            )
    settings = Settings(
        {name: value_of(name, value, f"avro.config.{name}") for name, value in config.items()}
    )
    try:
        import confluent_kafka.schema_registry  # noqa: F401
    except ImportError as error:
        raise SpecError(
            "avro.config",
            f"needs confluent-kafka's client of registries: pip install 'reprise-streams[registry]' ({error})",
        ) from None
    return Registry(url, Asking(url, settings))
