"""One S3 server for the tests of a file, and what stands in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from tests.support.faulty_store import FaultyStore, faulty_store
from tests.support.object_stores import S3Server, client_environment, s3_server

CLIENT: dict[str, Any] = {"config_kwargs": {"read_timeout": 60, "retries": {"max_attempts": 1}}}
"""Options of the client, given as a user would in fsspec's configuration: it tries twice, and soon gives up on errors."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


@pytest.fixture
def store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """The way to the server; clients that are made from now on take it."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with faulty_store(server.address) as between:
        for name, value in client_environment(between.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setitem(fsspec.config.conf, "s3", CLIENT)
        monkeypatch.setattr(fsspec.get_filesystem_class("s3"), "retries", 2)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield between
    fsspec.get_filesystem_class("s3").clear_instance_cache()
