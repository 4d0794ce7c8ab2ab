"""Where a topology's files are: a directory or a URL, and never with a password, as it stands in many places."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import from_json, load_topology
from reprise.spark_jobs.topology.locations import out_of_reach

BODY = json.loads(load_topology("examples/minimal.yaml").document)
FIELDS = ["checkpoint.location", "checkpoint.standby", "sink.location"]


def with_location(field: str, location: str) -> str:
    part, key = field.split(".")
    value: Any = [location] if key == "standby" else location
    spec = {**BODY["spec"], part: {**BODY["spec"][part], key: value}}
    return json.dumps({**BODY, "spec": spec})


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "location",
    [
        "ftp://me:hunter2@store/x",
        "s3://AKIAXXXX:hunter2@bucket/x",
        "sftp://:hunter2@store",
        "https://store/x?a=1&SIG=hunter2",
        "simplecache::ftp://me:hunter2@store/x",
    ],
)
def test_credentials_in_a_location_are_refused_and_not_repeated(field: str, location: str) -> None:
    with pytest.raises(SpecError, match=r"holds credentials.*AWS_SECRET_ACCESS_KEY") as refused:
        from_json(with_location(field, location))
    assert refused.value.field.startswith(f"spec.{field}")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "location",
    [
        "/data/x",
        "s3://bucket/a:b@c",
        "hdfs://me@name-node:8020/x",
        "abfs://container@account.dfs.core.windows.net/x",
        "ftp://store:2121/x",
        "file:///a?version=3",
    ],
)
def test_other_locations_are_taken(field: str, location: str) -> None:
    assert location in from_json(with_location(field, location)).document


def test_each_location_that_cannot_be_used_from_here_is_named() -> None:
    def wrong(field: str, location: str) -> list[tuple[str, str]]:
        return [
            (error.field, error.reason) for error in out_of_reach(from_json(with_location(field, location)))
        ]

    ((field, reason),) = wrong("checkpoint.standby", "nobody-knows-this://x")
    assert field == "spec.checkpoint.standby[0]"
    assert reason == "no package that is installed here knows URLs that begin with nobody-knows-this://"
    ((field, reason),) = wrong("checkpoint.location", "simplecache::file:///x")
    assert field == "spec.checkpoint.location" and "answers with copies of files that were replaced" in reason
    for field in FIELDS:
        assert wrong(field, "/data/x") == []
        assert wrong(field, "file:///data/x") == []
