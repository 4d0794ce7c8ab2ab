"""Schemas by id from a schema registry: for messages that begin with a zero byte and the id (Confluent's wire format), be it
Avro, JSON by JSON Schema, or Protobuf.

A registry that asks nobody who he is needs one GET.  One that does is asked by the client that confluent-kafka brings, which
knows passwords, tokens and certificates, and wants eleven packages more: it is imported where `config` is given.  Both say
the same of what goes wrong: a schema that the registry itself says is not there makes its message bad, and everything else
holds the batch back, a 404 of a wrong path or of a gateway before the registry too.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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


HEAD = 5
"""Bytes of a message before what is written by the schema."""


@dataclass(frozen=True, slots=True)
class Found:
    """A schema as a registry answers."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    """Of each schema that it imports: the name by which it does, subject, and version."""


class Fetch(Protocol):
    """Asks a registry.  SourceError while it does not answer."""

    def schema(self, number: int, form: str) -> Found:
        """The schema of this id, in a form that the registry knows for its kind; empty: as it was registered.  DecodeError
        where the registry says that there is none."""

    def version(self, subject: str, version: int, form: str) -> Found:
        """What is registered below this subject, even if marked as deleted: messages that need it may still be there."""


Parse = Callable[[Found, Fetch], Any]
"""Makes of a schema what reads messages.  ValueError says why it cannot be used, by anybody; SourceError, why not now."""


class Registry:
    """Finds the schema of a message; each id is asked for once."""

    def __init__(self, fetch: Fetch, kind: str, parse: Parse, form: str = "") -> None:
        self._fetch, self._kind, self._parse, self._form = fetch, kind, parse, form
        self._known: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, value: bytes) -> tuple[Any, int]:
        """DecodeError for a message without such a head; SourceError while the registry does not answer."""
        if len(value) < HEAD or value[0] != _MAGIC:
            raise DecodeError("does not begin with the id of a schema in the registry")
        number = int.from_bytes(value[1:HEAD], "big")
        with self._lock:
            if number not in self._known:
                self._known[number] = self._parsed(number)
            return self._known[number], HEAD

    def _parsed(self, number: int) -> Any:
        found = self._fetch.schema(number, self._form)
        try:
            if found.kind != self._kind:
                raise ValueError(f"it is {found.kind}")
            return self._parse(found, self._fetch)
        except ValueError as error:
            raise DecodeError(f"schema {number} of the registry cannot be used: {error}") from None


def head(number: int) -> bytes:
    """What a message begins with that is written by the schema of this id."""
    return bytes((_MAGIC,)) + number.to_bytes(4, "big")


def _missing(number: int) -> DecodeError:
    return DecodeError(f"the schema registry has no schema {number}")


class Plain:
    """Asks without saying who asks."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def schema(self, number: int, form: str) -> Found:
        return self._asked(f"schemas/ids/{number}", {}, form, number)

    def version(self, subject: str, version: int, form: str) -> Found:
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        return self._asked(path, {"deleted": "true"}, form)

    def _asked(self, path: str, query: Mapping[str, str], form: str, number: int | None = None) -> Found:
        query = {**query, "format": form} if form else query
        address = f"{self._url}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                found = json.load(answer)
            references = tuple(
                (str(r["name"]), str(r["subject"]), int(r["version"])) for r in found.get("references") or ()
            )
            return Found(str(found.get("schemaType") or "AVRO"), str(found["schema"]), references)
        except urllib.error.HTTPError as error:
            if number is not None and _code_of(error) == _NO_SCHEMA:
                raise _missing(number) from None
            raise SourceError(f"schema registry {self._url} answers {error.code} {error.reason}") from None
        except OSError as error:
            raise SourceError(f"schema registry {self._url} does not answer: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # a page of a gateway, say
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

    def schema(self, number: int, form: str) -> Found:
        return self._asked(lambda client: client.get_schema(number, fmt=form or None), number)

    def version(self, subject: str, version: int, form: str) -> Found:
        return self._asked(lambda client: client.get_version(subject, version, True, form or None).schema)

    def _asked(self, ask: Callable[[Any], Any], number: int | None = None) -> Found:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            if self._client is None:  # secrets are followed where they are needed, and may come later
                self._client = _client(self._url, self._settings)
            self._client.clear_caches()  # what it is asked for a second time, the first answer was no good for
            schema = ask(self._client)
        except SecretError as error:
            raise SourceError(f"schema registry {self._url} cannot be asked: {error}") from None
        except SchemaRegistryError as error:
            if number is not None and error.error_code == _NO_SCHEMA:
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
        references = tuple((str(r.name), str(r.subject), int(r.version)) for r in schema.references or ())
        return Found(str(schema.schema_type), str(schema.schema_str), references)


def _client(url: str, settings: Settings) -> Any:
    """It tries once: the batch waits, and is tried again."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": url, "timeout": _TIMEOUT_S, "max.retries": 0, **settings.followed()})


def make_fetch(url: Any, config: Any, place: str) -> Fetch:
    """Whoever asks the registry of a resource; `place`: the parameter in which it is named.  SpecError names the field."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise SpecError(f"{place}.registry", f"expected a URL, found {url!r}")
    if config is None:
        return Plain(url)
    if not isinstance(config, Mapping) or not config:
        raise SpecError(f"{place}.config", "expected a mapping of settings of the registry's client")
    for name in config:
        if name not in NAMES:
            raise SpecError(
                f"{place}.config.{name}", f"is no setting that is taken; known: {', '.join(sorted(NAMES))}"
            )
    settings = Settings(
        {name: value_of(name, value, f"{place}.config.{name}") for name, value in config.items()}
    )
    try:
        import confluent_kafka.schema_registry  # noqa: F401
    except ImportError as error:
        raise SpecError(
            f"{place}.config",
            f"needs confluent-kafka's client of registries: pip install 'reprise-streams[registry]' ({error})",
        ) from None
    return Asking(url, settings)
