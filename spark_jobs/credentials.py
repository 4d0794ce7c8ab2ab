"""Passwords in URLs, wherever a URL may stand: in parameters of a topology's classes, in what a client says of its trouble.

A topology is stored, shown and sent to executors as it is.  So parameters of built-in classes may hold none (`holds`); what
those of own classes hold is theirs to know, and what people are shown of them, and of messages, goes through `redacted`.
Invariant: redaction can only take away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

REDACTED = "(redacted)"
IN_URL = re.compile(
    r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/?#:@\"']*:)(?P<secret>[^\s/?#\"']+)(?=@)", re.IGNORECASE
)
"""`scheme://user:password@host`; a password may hold an @ itself."""
IN_QUERY = re.compile(
    r"(?P<keep>[a-z][a-z0-9+.-]*://[^\s\"']*?[?&](?:[^=&\s\"']*(?:token|secret|password|access_?key|signature|credential)[^=&\s\"']*|sig)=)"
    r"(?P<secret>[^&\s\"']+)",
    re.IGNORECASE,
)
"""A signed URL, or one with a token."""
IN_ACCOUNT = re.compile(
    r"(?P<keep>\b(?:AccountKey|SharedAccessSignature)\s*=(?!=)\s*(?=[^\s;\"']{8})|\bBearer\s+(?=[\w.~+/-]{16})(?=\S*\d)"
    r"|\baws_(?:secret_access_key|session_token)[\"']?\s*[=:]\s*[\"']?)(?P<secret>[^\s;\"']+)",
    re.IGNORECASE,
)
"""What clients of Azure, Google and AWS are given, and may repeat: parts of a connection string, the head of a request, a
line of a file or variables of the environment."""
_ALL = (IN_URL, IN_QUERY, IN_ACCOUNT)


def holds(text: str) -> bool:
    """Whether a text holds a URL with a password."""
    return any(found["secret"] != REDACTED for p in _ALL for found in p.finditer(text))


def redacted(text: str) -> str:
    """A text as it may be shown."""
    for pattern in _ALL:
        text = pattern.sub(lambda match: match["keep"] + REDACTED, text)
    return text


def places(value: Any, path: str = "") -> Iterator[str]:
    """Where in JSON values a text holds a URL with a password, e.g. `.hosts[1].url`; keys of mappings count, too."""
    if isinstance(value, str) and holds(value):
        yield path
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            if holds(str(key)):
                yield path
            yield from places(entry, f"{path}.{redacted(str(key))}")
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from places(entry, f"{path}[{index}]")
