"""The same on a server that speaks as Azure Blob Storage does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import adlfs
import pytest

from tests.stores.life import Life, assert_files, expected, shown, whole
from tests.support.azure_server import ACCOUNT, azure_server, connection
from tests.support.faulty_store import Fault, FaultyStore, What, faulty_store
from tests.support.object_stores import BUCKET

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with azure_server() as address:
        yield address


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """The way to the server, told as a user tells it."""
    with faulty_store(server) as between:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection(between.url.removeprefix("http://")))
        adlfs.AzureBlobFileSystem.clear_instance_cache()
        yield between
    adlfs.AzureBlobFileSystem.clear_instance_cache()


@pytest.fixture
def location() -> str:
    return f"abfs://{BUCKET}/{uuid.uuid4().hex}"


TROUBLE = {
    "none": [],
    "503": [Fault(What.REFUSED, status=503, every=25, times=4)],
    "answers that are lost": [Fault(What.ANSWER_LOST, "PUT", every=9, times=4)],
}
"""Few of each: Azure's client waits for many seconds before it tries again."""


@pytest.mark.parametrize("trouble", TROUBLE)
def test_each_batch_is_shown_once_and_each_checkpoint_has_its_files(
    trouble: str, store: FaultyStore, location: str, server: str
) -> None:
    life = Life(location)
    store.fault(*TROUBLE[trouble])
    assert life.driver(5) == 0
    assert life.driver(10) == 3
    store.fault()
    judge = adlfs.AzureBlobFileSystem(
        account_name=ACCOUNT,
        connection_string=connection(server),
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    assert shown(judge, location) == expected(10)
    assert whole(location) == [6, 9]
    assert all(fault.met for fault in TROUBLE[trouble]), "the test has met what it is for"


@pytest.mark.usefixtures("store")
def test_a_file_is_created_once_removed_as_a_whole_and_read_in_parts(location: str) -> None:
    assert_files(location)
