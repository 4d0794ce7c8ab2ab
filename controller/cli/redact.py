"""Taking secrets out of what leaves the machine.

Three nets, as each has holes: fields whose name says that they are secret, texts that look like one (passwords in URLs and
JAAS lines, bearer tokens, private keys, digests), and the secrets that this process itself knows, wherever they stand.
Invariant: redaction can only take away; a reference to a secret (`{env: NAME}`, `{file: PATH}`) is no secret and stays.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from reprise.spark_jobs.credentials import IN_QUERY, IN_URL, REDACTED

__all__ = ["REDACTED", "Redactor", "is_sensitive", "known_secrets"]

SHORTEST_KNOWN = 4
"""Shorter known secrets are words that stand everywhere; the other nets must catch them."""

_NAME = (
    r"pass(?:word|wd|phrase)?|secret|token(?!i[sz])|credential|jaas|api[-_.]?key|access[-_.]?key|account[-_.]?key|private[-_.]?key"
    r"|oauthbearer|authorization|auth[-_.]?data|zk[-_.]?auth|cookie|signature|sas[-_.]?key"
)
_SENSITIVE = re.compile(rf"(?:{_NAME})|(?:^|[-_.])(?:digest|auth|pwd)$", re.IGNORECASE)
_REFERENCE = frozenset({"env", "file", "secretKeyRef", "valueFrom", "configMapKeyRef"})
_TEXTS = (
    # name=value, name: value, "name": "value", also with the escaped quotes of JSON within JSON
    re.compile(
        rf"(?P<keep>[\w.-]*(?:{_NAME})[\w.-]*[\\]*[\"']?\s*[=:]\s*)"
        r"(?P<secret>[\\]*\"(?:[^\"\\]|\\[^\"])*[\\]*\"|[\\]*'[^']*'|(?:basic|bearer)\s+\S+|[^\s,;}\]\"'{\[]+)",
        re.IGNORECASE,
    ),
    IN_URL,
    IN_QUERY,
    re.compile(r"(?P<keep>\b(?:bearer|basic)\s+)(?P<secret>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE),
    re.compile(
        r"(?P<keep>\bdigest\b[\"']?(?:\s*[:,]\s*|\s+)[\"']?[^\s:\"']+:)(?P<secret>[^\s\"',)\]]+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?P<keep>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?P<secret>.*?)(?=-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        re.DOTALL,
    ),
    re.compile(r"(?P<keep>)(?P<secret>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b)"),
    re.compile(r"(?P<keep>)(?P<secret>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
)


def is_sensitive(name: str) -> bool:
    """Whether a field, setting or variable of this name holds a secret."""
    return _SENSITIVE.search(name) is not None


class Redactor:
    """`known`: secrets that are replaced wherever they stand.  `count`: how many places were blackened."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        wanted = {secret.strip() for secret in known}
        forms = {form for s in wanted if len(s) >= SHORTEST_KNOWN for form in _forms(s)}
        self._known = sorted(forms, key=len, reverse=True)
        self.count = 0

    def content(self, name: str, data: bytes) -> bytes:
        """A file: JSON by its structure, everything else as text."""
        text = data.decode("utf-8", errors="replace")
        if name.endswith(".json"):
            try:
                return (json.dumps(self.value(json.loads(text)), indent=1) + "\n").encode()
            except (ValueError, RecursionError):
                pass
        return self.text(text).encode()

    def value(self, value: Any) -> Any:
        """JSON with secrets replaced; its shape stays."""
        if isinstance(value, Mapping):
            named = value.get("name")
            secret = isinstance(named, str) and is_sensitive(named)
            return {
                self.text(str(key)): self._field("secret" if secret and key == "value" else str(key), entry)
                for key, entry in value.items()
            }
        if isinstance(value, list):
            return [self.value(entry) for entry in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Any text."""
        for secret in self._known:
            if secret in text:
                self.count += text.count(secret)
                text = text.replace(secret, REDACTED)
        for pattern in _TEXTS:
            text = pattern.sub(self._blackened, text)
        return text

    def _field(self, name: str, value: Any) -> Any:
        if not is_sensitive(name) or not value or isinstance(value, bool):
            return self.value(value)
        if isinstance(value, Mapping) and value.keys() <= _REFERENCE:
            return self.value(value)
        self.count += 1
        return REDACTED

    def _blackened(self, match: re.Match[str]) -> str:
        secret = match["secret"]
        if secret.strip("\\\"'") in ("", REDACTED, "null", "None", "true", "false") or REDACTED in secret:
            return match[0]
        self.count += 1
        return match["keep"] + REDACTED


def _forms(secret: str) -> set[str]:
    """How a secret may stand in a text: as it is, within JSON or a URL, and as Kubernetes writes it into a Secret."""
    encoded = base64.b64encode(secret.encode(errors="surrogateescape")).decode()
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="surrogateescape"),
        encoded,
    }


def known_secrets(environment: Mapping[str, str], files: Iterable[bytes] = ()) -> set[str]:
    """Secrets that this process knows: variables whose name says so, and the contents of secret files.  Of `user:password`
    the password counts by itself, too."""
    found = {value for name, value in environment.items() if is_sensitive(name) and not value.startswith("/")}
    found |= {data.decode("utf-8", errors="replace").strip() for data in files}
    return found | {secret.partition(":")[2] for secret in found if secret.count(":") == 1}
