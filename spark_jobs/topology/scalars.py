"""Scalars and the base class of the wire form: what a name, a duration or a quantity is, and that nothing unknown
passes.

Both readers of a topology file hold to these: `reprise run` through pydantic, the API server through the schema that is
generated from them.  So a type says as little as both can check: texts have a longest length (an API server refuses
rules whose cost it cannot bound) and numbers are integers or quantities, never floats, which the two would round or
print differently.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from reprise.spark_jobs.topology.quantity import (
    BYTES_PATTERN,
    DURATION_PATTERN,
    MAX_LENGTH,
    POSITIVE_BYTES_PATTERN,
    POSITIVE_CPU_PATTERN,
    parse_bytes,
    parse_cpu,
    parse_duration,
)

T = TypeVar("T", bound=Hashable)
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
CLASS_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"


def given_twice(values: Iterable[T]) -> T | None:
    """The first of `values` that is there more than once; None where each is there once."""
    return next((value for value, times in Counter(values).items() if times > 1), None)


def closest(word: str, known: list[str]) -> str | None:
    """The one of `known` that was probably meant."""
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.6)), None)


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest of `known`, or the list of them when none is close."""
    if close := closest(word, known):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(sorted(known))}" if known else ""


_EXAMPLES: dict[Callable[[str], float], str] = {
    parse_duration: "5500ms",
    parse_cpu: "500m for half a core",
    parse_bytes: "1536Mi",
}


def _text(parse: Callable[[str], float], minimum: float) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            what = "is a number with a point" if isinstance(value, float) else "is no text"
            raise ValueError(f"{value!r} {what}: write a number with a unit, e.g. {_EXAMPLES[parse]}")
        if parse(text) <= minimum:
            raise ValueError(f"{text!r} must be more than {minimum:g}")
        return text

    return check


def _quantity(pattern: str, least: int) -> WithJsonSchema:
    # A pattern and no rule says "more than 0": the API server takes an int-or-string to be as long as a request may be,
    # so a rule over it in a list is refused as too expensive.
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": pattern,
            "minimum": least,
            "maxLength": MAX_LENGTH,
        }
    )


_DURATION = WithJsonSchema(
    {
        "type": "string",
        "pattern": DURATION_PATTERN,
        "maxLength": MAX_LENGTH,
        "x-kubernetes-validations": [{"rule": "self.matches('[1-9]')", "message": "must be more than 0"}],
    }
)
Duration = Annotated[str, BeforeValidator(_text(parse_duration, 0)), _DURATION]
MaybeNoDuration = Annotated[
    str,
    BeforeValidator(_text(parse_duration, -1)),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "maxLength": MAX_LENGTH}),
]
Cpu = Annotated[str, BeforeValidator(_text(parse_cpu, 0)), _quantity(POSITIVE_CPU_PATTERN, 1)]
Bytes = Annotated[str, BeforeValidator(_text(parse_bytes, 0)), _quantity(POSITIVE_BYTES_PATTERN, 1)]
MaybeNoBytes = Annotated[str, BeforeValidator(_text(parse_bytes, -1)), _quantity(BYTES_PATTERN, 0)]

Text = Annotated[str, Field(max_length=1024)]
"""A short free text."""
_CREDENTIALS = r"//[^/?#]*:[^/?#]*@|[?&][^=&]*(sig|token|secret|password|access_?key)[^=&]*="
_WITHOUT = (
    "holds credentials, which everybody would see who sees the topology: leave them out of the URL and give them to the "
    "store's client as variables, e.g. AWS_SECRET_ACCESS_KEY or FSSPEC_FTP_PASSWORD (on Kubernetes with `secrets`)"
)


def _without_credentials(text: str) -> str:
    if re.search(_CREDENTIALS, text, re.IGNORECASE):
        raise ValueError(_WITHOUT)
    return text


Location = Annotated[
    Text,
    AfterValidator(_without_credentials),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 1024,
            "x-kubernetes-validations": [
                {"rule": f"!self.matches('(?i){_CREDENTIALS}')", "message": _WITHOUT}
            ],
        }
    ),
]
"""A directory or URL.  It stands in arguments of processes, in records and in messages, so it is no place for a password."""
Name = Annotated[
    str,
    Field(
        pattern=NAME_PATTERN,
        max_length=63,
        description="A DNS label: lower case letters, digits and inner hyphens.",
    ),
]
TopologyName = Annotated[
    str,
    Field(
        pattern=NAME_PATTERN,
        max_length=40,
        description="A DNS label of at most 40 characters: names of pods, incidents and plans begin with it.",
    ),
]
ObjectName = Annotated[
    str,
    Field(
        pattern=OBJECT_NAME_PATTERN,
        max_length=253,
        description="Name of a Kubernetes object: DNS labels with dots between.",
    ),
]
Priority = Annotated[int, Field(ge=1, le=10, strict=True)]
Parallelism = Annotated[
    int,
    Field(
        ge=1,
        le=1024,
        strict=True,
        description="Number of partitions (key groups) of this operator; immutable once the topology has started.",
    ),
]
ClassPath = Annotated[
    str,
    Field(
        alias="class",
        pattern=CLASS_PATTERN,
        max_length=256,
        description="Python class, written `package.module:Class`.",
    ),
]
# Free-form on purpose, and the only field that is: what a class takes is known to the class alone, which
# `binding` asks when the topology is loaded.
Parameters = Annotated[
    dict[str, Any],
    Field(
        alias="with",
        default_factory=dict,
        max_length=64,
        description="Keyword arguments of the class's constructor, checked against it when the topology is loaded.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    ),
]


class Closed(BaseModel):
    """Base of all wire models: camelCase names only, nothing unknown."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, use_attribute_docstrings=True
    )

    not_taken: ClassVar[Mapping[str, str]] = {}
    """Fields that people look for here and that are refused, with the reason."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in value:
                if key not in known:
                    reason = f"unknown field {key!r}{nearest(str(key), known)}"
                    if why := cls.not_taken.get(str(key)):
                        reason = f"is not for a topology to say: {why}"
                    context = {"reason": reason, "field": str(key), "meant": closest(str(key), known) or ""}
                    raise PydanticCustomError("unknown_field", "{reason}", context)
        return value
