"""Exactly once on an S3 server, whatever happens on the way to it: what is shown, and what checkpoints hold."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from s3fs import S3FileSystem

from reprise.spark_jobs.errors import SinkError, StoreError, SupersededError
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage import files
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text
from tests.stores.life import PLACE, Life, expected, repeated, rows, shown, whole
from tests.support import object_stores
from tests.support.faulty_store import Fault, FaultyStore, What
from tests.support.object_stores import BUCKET, S3Server
from tests.unit.spark_jobs.state.test_storage import SMALL, TABLES

pytestmark = pytest.mark.slow

Faults = Callable[[], list[Fault]]
ALL = "/"
FILES = r"/(sink|checkpoints)/"


@pytest.fixture
def location() -> str:
    """A place in the bucket that nobody has used."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def judge(server: S3Server) -> S3FileSystem:
    """A client that goes to the server itself."""
    return server.client()


TROUBLE: dict[str, Faults] = {
    "none": list,
    "500": lambda: [Fault(What.REFUSED, target=ALL, status=500, code="InternalError", every=3)],
    "503 slow down": lambda: [Fault(What.REFUSED, target=ALL, status=503, code="SlowDown", every=8)],
    "503 with a time": lambda: [
        Fault(What.REFUSED, "PUT", status=503, code="ServiceUnavailable", headers=[("Retry-After", "1")], every=5, times=3)
    ],
    "answers that are lost": lambda: [Fault(What.ANSWER_LOST, "PUT", every=2), Fault(What.ANSWER_LOST, "POST", every=2)],
    "500 after it was done": lambda: [
        Fault(What.ANSWER_FAILED, m, status=500, code="InternalError", every=2) for m in ("PUT", "POST")
    ],
    "uploads that are cut": lambda: [Fault(What.UPLOAD_CUT, "PUT", every=2)],
    "bodies that are cut": lambda: [Fault(What.BODY_CUT, "GET", every=2)],
    "bodies that are short": lambda: [Fault(What.BODY_SHORT, "GET", FILES, every=3)],
    "slow": lambda: [Fault(What.SLOW, target=ALL, seconds=0.3, every=7)],
    "slower than the client waits": lambda: [Fault(What.SLOW, "PUT", seconds=8.0, every=9, times=3)],
    "removals that fail": lambda: [Fault(What.REFUSED, "POST", status=503, code="SlowDown", every=2)],
    "listings that are late": lambda: [
        Fault(What.NOT_LISTED, "GET", r"list-type.*(ranges|cp-|checkpoints%2F&|sink)", listings=5)
    ],
}  # fmt: skip
SOME = ("answers that are lost",)
IMPATIENT: dict[str, Any] = {"config_kwargs": {"read_timeout": 5, "retries": {"max_attempts": 1}}}


@pytest.mark.parametrize(
    "trouble", [pytest.param(name, marks=[] if name in SOME else [pytest.mark.wide]) for name in TROUBLE]
)
def test_each_batch_is_shown_once_and_each_checkpoint_has_its_files(
    trouble: str, store: FaultyStore, location: str, judge: S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "slower than the client waits":
        monkeypatch.setitem(fsspec.config.conf, "s3", IMPATIENT)
    faults = TROUBLE[trouble]()
    life = Life(location)
    store.fault(*faults)
    assert life.driver(5) == 0
    assert life.driver(10) in ((0, 3) if trouble == "listings that are late" else (3,))
    store.fault()
    assert shown(judge, location) == expected(10)
    kept = whole(location)
    late = [3] if trouble == "listings that are late" and 3 in kept else []
    assert kept == [*late, 6, 9], "what is listed late is pruned late"
    assert all(fault.met for fault in faults), "the test has met what it is for"


def test_a_second_writer_never_replaces_what_the_first_has_shown(
    store: FaultyStore, location: str, judge: S3FileSystem
) -> None:
    """Their answers get lost, too, so that neither knows at first who was quicker."""
    store.fault(Fault(What.ANSWER_LOST, "PUT", every=2))
    for batch in range(1, 5):
        with ThreadPoolExecutor(2) as pool:
            sinks = [file_sink(f"{location}/sink", PLACE, "jsonl") for _ in range(2)]
            tables = [rows(batch), rows(batch + 100)]
            done = list(pool.map(lambda s, t: _outcome(s, batch, t), sinks, tables))  # noqa: B023 - used up in the loop
        assert sorted(done) == ["differs", "shown"]
    found = shown(judge, location)
    assert len(found) == 4 and all(len(data.splitlines()) == 40 for data in found.values())


def _outcome(sink: Any, batch: int, table: pa.Table) -> str:
    def written() -> str:
        try:
            sink.write(batch, table)
        except SinkError as error:
            if "not identical" not in str(error):
                raise
            return "differs"
        return "shown"

    return repeated(written)


@pytest.mark.parametrize(
    ("megabytes", "cut"),
    [(1, ""), pytest.param(110, "partNumber=2", marks=pytest.mark.wide)],
    ids=["whole", "in parts"],
)
def test_nothing_of_an_upload_that_was_cut_is_seen(
    store: FaultyStore, location: str, judge: S3FileSystem, megabytes: int, cut: str
) -> None:
    """Who looks finds no file at all, and the next one writes it whole.  The client sends more than 100 MiB in parts."""
    here, data = Files(location), b"0123456789abcdef" * 2**16 * megabytes
    fault = Fault(What.UPLOAD_CUT, "PUT", cut)
    store.fault(fault)
    with pytest.raises(StoreError, match="cannot write state"):
        here.create("state", data)
    assert fault.met and not judge.exists(f"{location}/state")
    store.fault()
    assert repeated(lambda: here.create("state", data)) and judge.cat_file(f"{location}/state") == data
    assert (
        not repeated(lambda: here.create("state", data[:-1] + b"!"))
        and judge.cat_file(f"{location}/state") == data
    )


@pytest.mark.wide
def test_a_name_that_another_process_has_taken_is_read_whatever_was_listed_before(
    store: FaultyStore, location: str
) -> None:
    here = Files(location)
    assert here.create("ranges/1", b"ours") and here.names("ranges") == ["1"]
    text = f"from reprise.spark_jobs.storage.files import Files; print(Files({location!r}).create('ranges/2', b'theirs'))"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True"]
    assert not here.create("ranges/2", b"ours") and here.read("ranges/2") == b"theirs"


@pytest.mark.wide
def test_a_removal_is_not_said_to_be_done_while_the_store_keeps_a_file(
    store: FaultyStore, location: str, judge: S3FileSystem
) -> None:
    """S3 answers a removal of several files with 200 and says of each whether it is gone; the client passes over that."""
    here = Files(location)
    here.create("cp-1/COMPLETE.00000001.json", b"manifest")
    here.create("cp-10/COMPLETE.00000001.json", b"another's")
    kept = b"<DeleteResult><Error><Key>cp</Key><Code>InternalError</Code></Error></DeleteResult>"
    store.fault(Fault(What.REFUSED, "POST", "delete", status=200, body=kept, times=1))
    with pytest.raises(StoreError, match=r"cannot remove cp-1 .* has not removed all"):
        here.remove("cp-1")
    here.remove("cp-1")
    assert here.names("cp-1") == [] and here.names("cp-10") == ["COMPLETE.00000001.json"]
    assert [path.rsplit("/", 2)[1] for path in judge.find(location)] == ["cp-10"]


@pytest.mark.wide
def test_a_bucket_that_is_not_there_is_not_an_empty_one(store: FaultyStore) -> None:
    here = Files("s3://no-such-bucket/stream")
    for ask in (lambda: here.read("a"), lambda: here.exists("a"), here.names, lambda: here.create("a", b"")):
        with pytest.raises(StoreError, match=r"in s3://no-such-bucket/stream"):
            ask()


@pytest.mark.wide
def test_a_store_whose_listings_are_late_is_refused_when_a_driver_begins(
    store: FaultyStore, location: str
) -> None:
    """It could not see that a later one has begun; two of them would write checkpoints beside each other."""
    store.fault(Fault(What.NOT_LISTED, "GET", "list-type", listings=1_000_000))
    with pytest.raises(StoreError, match=r"not in the listing of epochs .* listings are late"):
        claim_epoch(location, lambda least: least)


@pytest.mark.wide
def test_a_block_of_the_ledger_that_is_not_listed_yet_is_found_by_its_name(
    store: FaultyStore, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = load_text(SMALL)
    first = Ledger(location, resource, expand(resource))
    first.reach(40)
    names = Files.names

    def without(self: Files, relative: str = "") -> list[str]:
        return [name for name in names(self, relative) if name != "0000000017.json"]

    monkeypatch.setattr(Files, "names", without)
    again = Ledger(location, resource, expand(resource))
    assert (again.stream, again.written, again.ranges) == (first.stream, first.written, first.ranges)


@pytest.mark.wide
def test_a_file_that_stands_for_a_folder_is_not_in_it(
    store: FaultyStore, location: str, judge: S3FileSystem
) -> None:
    """Consoles make such files, and some servers keep a folder whose files are gone."""
    judge.pipe_file(f"{location}/epochs/", b"")
    here = Files(location)
    assert here.names("epochs") == []
    here.create("epochs/00000001.json", b"{}")
    assert here.names("epochs") == ["00000001.json"]


@pytest.mark.wide
def test_credentials_that_have_run_out_are_taken_anew_and_never_said(
    store: FaultyStore, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a file that a side car renews: neither the process nor the client that it keeps is begun again."""

    given = tmp_path / "credentials"

    def give(key: str, secret: str) -> None:
        given.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\n")

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(given))
    monkeypatch.setattr(files, "RENEWED_AFTER_S", 0.1)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    give(object_stores.ACCESS_KEY, object_stores.SECRET_KEY)
    here = Files(location)
    assert here.create("a", b"first")
    store.fault(Fault(What.REFUSED, status=400, code="ExpiredToken", credentials=object_stores.ACCESS_KEY))
    said = []
    for ask in (lambda: here.create("b", b"second"), lambda: here.read("a"), here.names):
        with pytest.raises(StoreError) as refused:
            ask()
        said.append(str(refused.value))
    give(object_stores.NEXT_KEY, object_stores.NEXT_SECRET)
    time.sleep(0.2)
    assert repeated(lambda: here.create("b", b"second")) and here.read("a") == b"first"
    secrets = (object_stores.ACCESS_KEY, object_stores.SECRET_KEY, object_stores.NEXT_KEY, "Signature=")
    assert not [text for text in said for secret in secrets if secret in text]


def test_a_server_that_is_busy_is_left_alone_as_long_as_it_says(
    store: FaultyStore, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_alone: dict[str, float] = {}
    monkeypatch.setattr(files, "_left_alone", left_alone)  # what it has said is nothing to other tests
    here = Files(location)
    assert here.create("a", b"")
    store.fault(
        Fault(What.REFUSED, "PUT", status=503, code="ServiceUnavailable", headers=[("Retry-After", "30")])
    )
    with pytest.raises(StoreError):
        here.create("b", b"")
    before = len(store.requests)
    store.fault()
    with pytest.raises(StoreError, match="Retry-After"):
        here.create("b", b"")
    assert len(store.requests) == before
    left_alone.clear()  # as if the time were over
    assert repeated(lambda: here.create("b", b""))


@pytest.mark.wide
def test_a_part_of_a_file_is_not_asked_for_as_a_whole_while_the_store_is_busy(
    store: FaultyStore, location: str
) -> None:
    here = Files(location)
    here.create("state", b"0123456789")
    assert here.read_part("state", 2, 5) == b"234" and here.read_part("state", 20, 30) == b""
    store.fault(Fault(What.REFUSED, "GET", status=500, code="InternalError"))
    store.requests.clear()
    with pytest.raises(StoreError):
        here.read_part("state", 2, 5)
    assert store.told("GET", "state") and not store.told("HEAD", "state"), (
        "the client asks for the size of a whole file"
    )


@pytest.mark.wide
def test_what_is_pruned_loses_its_manifest_before_its_files(store: FaultyStore, location: str) -> None:
    kept = CheckpointStore(location)
    for position in (4, 8, 12):
        files = {f"p.{i}": kept.write_state(position, f"p.{i}", "h", TABLES) for i in range(2)}
        kept.complete(Manifest.of_round(position, files, {}))
    removals = Fault(What.REFUSED, "POST", "delete", status=500, code="InternalError")
    store.fault(
        Fault(What.SLOW, "POST", "delete", times=1), removals
    )  # the first one is carried out, the others are not
    with pytest.raises(StoreError):
        kept.prune(2)
    store.fault()
    assert kept.positions() == [8, 12], "it does not exist any more, though most of its files do"
    assert len(Files(location).names("cp-00000004")) == 2
    kept.prune(2)
    assert Files(location).names("cp-00000004") == []


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the server passed over conditions of uploads: they are not sent to it."""
    client = fsspec.get_filesystem_class("s3")
    real = client._call_s3

    async def without(self: Any, method: str, *given: Any, **more: Any) -> Any:
        more.pop("IfNoneMatch", None)
        return await real(self, method, *given, **more)

    monkeypatch.setattr(client, "_call_s3", without)
    monkeypatch.setattr(files, "_passes_over", {})


@pytest.mark.usefixtures("careless")
def test_a_server_that_passes_over_conditions_replaces_nothing_that_was_there_before(
    store: FaultyStore, location: str, judge: S3FileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that was frozen and wakes later says nothing anew, and a replay that is not identical is noticed."""
    store.fault(Fault(What.ANSWER_LOST, "PUT", every=2))
    here, other = Files(location), Files(location)
    assert repeated(lambda: here.create("a", b"ours")) and not repeated(lambda: other.create("a", b"theirs"))
    resource = load_text(SMALL)
    old = claim_epoch(location, lambda least: least)
    assert "event=store-replaces" in caplog.text
    frozen = Ledger(location, resource, expand(resource), old)
    late = Ledger(location, resource, expand(resource), claim_epoch(location, lambda least: least))
    late.reach(1)
    said = judge.cat_file(f"{location}/ranges/0000000001.json")
    with pytest.raises(SupersededError):
        frozen.reach(1)
    assert judge.cat_file(f"{location}/ranges/0000000001.json") == said
    file_sink(f"{location}/sink", PLACE, "jsonl").write(1, rows(1))
    with pytest.raises(SinkError, match="not identical"):
        file_sink(f"{location}/sink", PLACE, "jsonl").write(1, rows(2))
    assert shown(judge, location) == expected(1)
    assert not [path for path in judge.find(location) if ".part" in path], "what was tried is removed"


@pytest.mark.wide
@pytest.mark.parametrize("known", [{}, {"s3://tests": False}], ids=["first", "later"])
def test_a_server_that_refuses_conditions_takes_nothing(
    store: FaultyStore,
    location: str,
    judge: S3FileSystem,
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, bool],
) -> None:
    monkeypatch.setattr(files, "_passes_over", known)
    store.fault(Fault(What.REFUSED, "PUT", status=501, code="NotImplemented"))
    with pytest.raises(StoreError, match=r"cannot write a in "):
        Files(location).create("a", b"")
    assert not judge.exists(f"{location}/a")


@pytest.mark.wide
def test_a_listing_of_several_pages_is_whole_or_trouble(
    store: FaultyStore, location: str, judge: S3FileSystem
) -> None:
    """The server lists a thousand at a time, and removes as many."""
    names = [f"{n:010d}.json" for n in range(1, 1104)]
    judge.pipe({f"{location}/ranges/{name}": b"x" for name in names})
    here = Files(location)
    assert here.names("ranges") == names
    assert store.told("GET", "continuation-token"), "the test has met what it is for"
    store.fault(Fault(What.REFUSED, "GET", "continuation-token", status=500, code="InternalError"))
    with pytest.raises(StoreError, match=r"cannot list ranges"):
        here.names("ranges")
    store.fault()
    repeated(lambda: here.remove("ranges"))
    assert here.names("ranges") == [] and not [path for path in judge.find(location) if "json" in path]


def _sockets() -> set[str]:
    return {path.name.rpartition("-")[2] for path in object_stores.SOCKETS.glob("seaweedfs-*")}


@pytest.mark.wide
def test_servers_of_two_tests_share_nothing_and_leave_nothing(
    server: S3Server, location: str, judge: S3FileSystem
) -> None:
    """All that this one listens at besides is in files that are named by port alone."""
    judge.pipe_file(f"{location}/a", b"here")
    with object_stores.s3_server() as another:
        assert another.client().ls(BUCKET) == [f"{BUCKET}/first"]
        first = int(another.address.rpartition(":")[2])
        own = {f"{first + i}.sock" for i in range(object_stores.PORTS)}
        assert _sockets() & own, "else there is nothing to leave"
    assert judge.cat_file(f"{location}/a") == b"here" and not _sockets() & own
