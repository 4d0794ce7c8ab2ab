"""Logs of all processes: one event name with key=value fields a line, as text or, by choice, as one JSON object a line.

Nobody writes a line twice: a record's template says which of its arguments is which field (`"event=fenced pod=%s"`), so the
JSON has their values and not a text that would have to be taken apart again.  `about` gives the ids (topology, incident,
plan) to every line that this thread writes from then on, so that all lines about one incident are found by its id.

Invariant: no line has a URL with a password, whoever wrote it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TextIO

from reprise.spark_jobs.credentials import redacted

FORMATS = ("text", "json")
VARIABLE = "REPRISE_LOG_FORMAT"
"""Of the environment; what is started by a process logs as it does."""
TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_FIELD = re.compile(r"(?<!\S)(\w+)=(\S+)")
_SLOT = re.compile(r"%(?:[-+ #0-9.]*)([sdrfgxc%])")
_PLAIN = (str, int, float, bool, type(None))
_ids: ContextVar[Mapping[str, str]] = ContextVar("ids", default=MappingProxyType({}))


def about(**ids: str | None) -> None:
    """What the following lines of this thread are about; None: no longer about one of that kind."""
    merged = {**_ids.get(), **ids}
    _ids.set({name: value for name, value in merged.items() if value})


def fields(template: str, arguments: Any) -> tuple[str, dict[str, Any]]:
    """The words of a template that are no field, and the fields with the values of their arguments."""
    values = iter(arguments if isinstance(arguments, tuple) else ())
    found: dict[str, Any] = {}
    words: list[str] = []
    end = 0
    for match in _FIELD.finditer(template):
        words.append(_filled(template[end : match.start()], values))
        found[match[1]] = _value(match[2], values)
        end = match.end()
    words.append(_filled(template[end:], values))
    return " ".join("".join(words).split()), found


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, ids, fields; `message` has the words that are no field."""

    def format(self, record: logging.LogRecord) -> str:
        words, found = fields(str(record.msg), record.args)
        line: dict[str, Any] = {
            "ts": round(record.created, 6),
            "level": record.levelname,
            "logger": record.name,
            **_ids.get(),
        }
        if words:
            line["message"] = words
        line |= {name: value for name, value in found.items() if value != "-"}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return redacted(json.dumps(line, default=str))


class TextFormatter(logging.Formatter):
    """Formats a line as people read it, with its time in UTC; ids that the line itself does not name come last."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        ids = [f"{name}={value}" for name, value in _ids.get().items() if f" {name}=" not in text]
        head, mark, trace = text.partition("\n")
        return redacted(" ".join([head, *ids]) + mark + trace)


def setup(
    chosen: str | None = None,
    *,
    level: int = logging.INFO,
    quiet: tuple[str, ...] = (),
    stream: TextIO | None = None,
) -> None:
    """Log to standard error in the `chosen` format, or in that of the environment; `quiet`: loggers that only warn."""
    wanted = chosen or os.environ.get(VARIABLE) or FORMATS[0]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if wanted == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)


def _value(pattern: str, values: Any) -> Any:
    """A single slot keeps its argument's type; text around slots makes it text."""
    slots = _SLOT.findall(pattern)
    if len(slots) == 1 and _SLOT.fullmatch(pattern) and slots[0] != "%":
        value = next(values, None)
        return value if isinstance(value, _PLAIN) else str(value)
    return _filled(pattern, values)


def _filled(pattern: str, values: Any) -> str:
    return _SLOT.sub(lambda m: "%" if m[1] == "%" else m[0] % next(values, ""), pattern)
