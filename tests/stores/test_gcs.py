"""The same on a server that speaks as Google Cloud Storage does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import gcsfs.core
import pytest

from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.storage.files import Files
from tests.stores.life import Life, assert_files, expected, shown, whole
from tests.support.faulty_store import Fault, FaultyStore, What, faulty_store
from tests.support.gcs_server import gcs_server
from tests.support.object_stores import BUCKET

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with gcs_server() as address:
        yield address


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """The way to the server.  The client asks a real one by gRPC of which kind a bucket is; this one has plain ones only."""
    plain = gcsfs.core.GCSFileSystem
    with faulty_store(server) as between:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", between.url)
        for scheme in ("gs", "gcs"):
            monkeypatch.setitem(fsspec.config.conf, scheme, {"token": "anon", "project": "tests"})
        before = fsspec.get_filesystem_class("gs")
        fsspec.register_implementation("gs", plain, clobber=True)
        plain.clear_instance_cache()
        yield between
        fsspec.register_implementation("gs", before, clobber=True)
    plain.clear_instance_cache()


@pytest.fixture
def location() -> str:
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


TROUBLE = {
    "none": [],
    "503": [Fault(What.REFUSED, status=503, every=9)],
    "answers that are lost": [Fault(What.ANSWER_LOST, "POST", every=3)],
    "500 after it was done": [Fault(What.ANSWER_FAILED, "POST", status=500, every=3)],
    "uploads that are cut": [Fault(What.UPLOAD_CUT, "POST", "upload", every=3)],
    "bodies that are cut": [Fault(What.BODY_CUT, "GET", "alt=media", every=2)],
    "bodies that are short": [Fault(What.BODY_SHORT, "GET", "alt=media", every=3)],
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_each_batch_is_shown_once_and_each_checkpoint_has_its_files(
    trouble: str, store: FaultyStore, location: str, server: str
) -> None:
    life = Life(location)
    store.fault(*TROUBLE[trouble])
    assert life.driver(5) == 0
    assert life.driver(10) == 3
    store.fault()
    judge = gcsfs.core.GCSFileSystem(
        token="anon", endpoint_url=f"http://{server}", skip_instance_cache=True, use_listings_cache=False
    )
    assert shown(judge, location) == expected(10)
    assert whole(location) == [6, 9]
    assert all(fault.met for fault in TROUBLE[trouble]), "the test has met what it is for"


def test_a_file_is_created_once_removed_as_a_whole_and_read_in_parts(
    store: FaultyStore, location: str
) -> None:
    assert_files(location)


def test_an_upload_that_is_refused_for_good_is_trouble_that_passes(store: FaultyStore, location: str) -> None:
    store.fault(Fault(What.REFUSED, "POST", status=403, body=b'{"error": {"code": 403, "message": "no"}}'))
    with pytest.raises(StoreError, match=r"cannot write a in gs://.*Forbidden"):
        Files(location).create("a", b"")
