"""Keys and values of labels as an API server takes them.

What it would refuse in a pod is refused in the topology: a pod of executors that cannot be made is noticed only when Spark
asks for one, in the middle of a recovery.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
KEY_PATTERN = rf"^({_PART}([.]{_PART})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_LONGEST_PREFIX = 253
_MOST_ANNOTATIONS = 1 << 18
LONGEST_KEY = _LONGEST_PREFIX + 1 + 63
"""A domain, a slash and a name."""
NOT_A_KEY = "expected the key of a label: a name of 63 characters at most, after a domain and a slash where it has one"


def checked_key(key: str) -> str:
    """ValueError for what an API server does not take for a key."""
    if not re.fullmatch(KEY_PATTERN, key) or len(key.rpartition("/")[0]) > _LONGEST_PREFIX:
        raise ValueError(NOT_A_KEY)
    return key


def within_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """ValueError for more than an API server takes in all."""
    if (size := sum(len(f"{key}{value}".encode()) for key, value in annotations.items())) > _MOST_ANNOTATIONS:
        raise ValueError(f"keys and values have {size} bytes, and an API server takes {_MOST_ANNOTATIONS}")
    return annotations


LabelKey = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY), AfterValidator(checked_key)]
AnnotationKey = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_KEY),
    AfterValidator(lambda key: checked_key(key.lower()) and key),
]
"""Its domain may have upper case letters, too."""
LabelValue = Annotated[str, Field(pattern=VALUE_PATTERN, max_length=63)]
