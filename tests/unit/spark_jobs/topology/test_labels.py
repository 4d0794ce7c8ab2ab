"""Keys and values of labels: what an API server refuses in a pod is refused in the topology."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from reprise.spark_jobs.topology.labels import NOT_A_KEY, LabelKey, LabelValue, checked_key

KEYS, VALUES = TypeAdapter(LabelKey), TypeAdapter(LabelValue)
LONGEST_NAME, LONGEST_DOMAIN = "n" * 63, ".".join(["d" * 62] * 4) + "d"
"""63 and 252 characters."""


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "A.b_c-9",
        "topology.kubernetes.io/zone",
        "x/y",
        LONGEST_NAME,
        f"{LONGEST_DOMAIN}d/{LONGEST_NAME}",
    ],
)
def test_what_an_api_server_takes_is_a_key(key: str) -> None:
    assert checked_key(key) == key
    assert KEYS.validate_python(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "-a",
        "a-",
        "a b",
        "/a",
        "a/",
        "a/b/c",
        "Upper.case/a",
        "a..b/c",
        "ä",
        "a\n",
        f"{LONGEST_NAME}n",
        f"{LONGEST_DOMAIN}dd/a",
    ],
)
def test_what_it_refuses_is_none(key: str) -> None:
    with pytest.raises(ValueError, match="expected the key of a label"):
        checked_key(key)
    with pytest.raises(ValidationError, match=NOT_A_KEY[:30]):
        KEYS.validate_python(key)


def test_an_empty_key_and_one_that_is_no_text_are_refused() -> None:
    for key in ("", None, 1):
        with pytest.raises(ValidationError):
            KEYS.validate_python(key)


@pytest.mark.parametrize("value", ["", "a", "A.b_c-9", "v" * 63])
def test_values_may_be_empty(value: str) -> None:
    assert VALUES.validate_python(value) == value


@pytest.mark.parametrize("value", ["-", "a-", "a b", "a/b", "v" * 64, "ä", 1])
def test_values_have_fewer_characters_than_keys(value: object) -> None:
    with pytest.raises(ValidationError):
        VALUES.validate_python(value)
