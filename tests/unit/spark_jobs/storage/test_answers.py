"""What clients of object stores say with an exception: each in its own words."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from azure.core.exceptions import HttpResponseError
from botocore.exceptions import ClientError
from gcsfs.retry import validate_response

from reprise.spark_jobs.storage.answers import (
    are_credentials_refused,
    is_behind_the_end,
    is_taken,
    trouble_behind,
)


def s3(status: int) -> Exception:
    names = {416: "InvalidRange", 412: "PreconditionFailed", 503: "SlowDown"}
    said = {"Error": {"Code": names.get(status, "Other")}, "ResponseMetadata": {"HTTPStatusCode": status}}
    outer = OSError(22, "as s3fs translates it")
    outer.__cause__ = ClientError(said, "GetObject")  # type: ignore[arg-type]
    return outer


def azure(status: int) -> Exception:
    error = HttpResponseError(f"refused with {status}")
    error.status_code = status
    return error


def gcs(status: int) -> Exception:
    try:
        validate_response(status, json.dumps({"error": {"message": "why"}}).encode(), "b/o")
    except Exception as error:
        return error
    raise AssertionError(f"{status} was taken for an answer")


def gcs_without_json(status: int) -> Exception:
    try:
        validate_response(status, b"", "b/o")
    except Exception as error:
        return error
    raise AssertionError(f"{status} was taken for an answer")


CLIENTS = pytest.mark.parametrize("client", [s3, azure, gcs, gcs_without_json])


@CLIENTS
@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503])
def test_what_is_refused_for_another_reason_does_not_lie_behind_the_end(
    client: Callable[[int], Exception], status: int
) -> None:
    assert not is_behind_the_end(client(status))


@CLIENTS
def test_what_lies_behind_the_end_does(client: Callable[[int], Exception]) -> None:
    assert is_behind_the_end(client(416))


@CLIENTS
def test_credentials_are_refused_with_401_and_403_alone(client: Callable[[int], Exception]) -> None:
    refused = {status for status in (401, 403, 412, 416, 500, 503) if are_credentials_refused(client(status))}
    assert refused == {401, 403}


@CLIENTS
def test_a_name_that_is_taken_is_told(client: Callable[[int], Exception]) -> None:
    assert [status for status in (403, 412, 503) if is_taken(client(status))] == [412]


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_file_is_not_missing_when_google_was_not_heard(status: int) -> None:
    missing = FileNotFoundError("b/o")
    assert trouble_behind(missing, None) is None
    missing.__cause__ = gcs(status)
    assert trouble_behind(missing, None) is missing.__cause__


@pytest.mark.parametrize("earlier", [FileExistsError("another file"), s3(412)])
def test_what_was_being_handled_before_says_nothing_of_an_upload(earlier: Exception) -> None:
    try:
        raise earlier
    except Exception as before:
        try:
            raise OSError("the upload was cut")
        except OSError as error:
            assert not is_taken(error, before)
            assert is_taken(error), "without `before` it is taken for the upload's own reason"
