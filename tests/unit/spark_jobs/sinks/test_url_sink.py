"""Sink files below URLs: what appears, how often, and what a second writer finds there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.sinks.url import UrlSink, file_sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.storage.files import Files
from tests.support.ftp import ftp_server

PLACE = Place("out", 0, 1)
ROWS = pa.table({"tag": ["a", "b"], "n": [1, 2]})
LINES = b'{"tag":"a","n":1}\n{"tag":"b","n":2}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty folder on a file server."""
    with ftp_server(tmp_path_factory.mktemp("served")) as url:
        yield url


@pytest.fixture(params=["memory", "server"])
def sinks(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[UrlSink, UrlSink]:
    """Two writers of the same partition, on a store that shows whole objects and on a file system that renames."""
    root = "memory://results" if request.param == "memory" else request.getfixturevalue("server")
    first, second = (file_sink(f"{root}/{tmp_path.name}", PLACE, "jsonl") for _ in range(2))
    assert isinstance(first, UrlSink) and isinstance(second, UrlSink)
    return first, second


def _stored(sink: UrlSink) -> dict[str, bytes]:
    fs = sink._files._fs
    fs.invalidate_cache()
    names = [Path(path).name for path in fs.ls(sink.folder, detail=False)]
    return {name: fs.cat_file(f"{sink.folder}/{name}") for name in sorted(names)}


def test_a_batch_is_shown_once_whoever_writes_it(sinks: tuple[UrlSink, UrlSink]) -> None:
    first, second = sinks
    first.write(1, ROWS)
    second.write(1, ROWS)
    first.write(2, None)
    assert _stored(first) == {"batch-00000001.jsonl": LINES, "batch-00000002.jsonl": b""}
    assert (first.visible, second.visible) == (2, 1)
    assert [batch for batch, _ in first.shown()] == [1, 2] and first.shown() == []


def test_other_rows_never_replace_what_is_there(sinks: tuple[UrlSink, UrlSink]) -> None:
    first, second = sinks
    first.write(1, ROWS)
    with pytest.raises(SinkError, match="batch 1 is not identical"):
        second.write(1, ROWS.slice(1))
    assert _stored(first) == {"batch-00000001.jsonl": LINES}
    assert second.visible == 0


def test_writers_at_once_leave_one_file_a_batch(sinks: tuple[UrlSink, UrlSink]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for batch in range(1, 6):
            list(pool.map(lambda sink: sink.write(batch, ROWS), sinks))  # noqa: B023 - used up within the loop
    assert _stored(sinks[0]) == {f"batch-0000000{batch}.jsonl": LINES for batch in range(1, 6)}


def test_a_server_that_refuses_is_named(server: str) -> None:
    sink = file_sink(f"{server}/taken", PLACE, "jsonl")
    assert isinstance(sink, UrlSink)
    parent = sink.folder.rsplit("/", 1)[0]
    fs = sink._files._fs
    fs.makedirs(parent.rsplit("/", 1)[0], exist_ok=True)
    fs.pipe_file(parent, b"a file where a folder should be")
    with pytest.raises(SinkError, match=r"cannot write .*/taken/out/0/batch-00000001\.jsonl"):
        sink.write(1, ROWS)


def test_checkpoints_lie_on_a_server_too(server: str) -> None:
    file = CheckpointStore(f"{server}/checkpoints").write_state(5, "count.0", "host-1", {"counts": ROWS})
    assert CheckpointStore(f"{server}/checkpoints").read_state(file)["counts"].equals(ROWS)


def test_folders_keep_their_own_sink(tmp_path: Path) -> None:
    for root in (str(tmp_path), tmp_path.as_uri()):
        sink = file_sink(root, PLACE, "jsonl")
        assert isinstance(sink, FileSink) and sink.path(1).is_relative_to(tmp_path)


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(SinkError, match=r"sink location warp://x: .*warp"):
        file_sink("warp://x", PLACE, "jsonl")


def test_what_was_shown_is_read_again_before_a_replay_is_called_another(
    sinks: tuple[UrlSink, UrlSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sinks
    first.write(1, ROWS)
    real, cut = Files.read, [1]

    def short(self: Files, relative: str) -> bytes | None:
        data = real(self, relative)
        if cut[0] and data:
            cut[0] -= 1
            return data[:-3]
        return data

    monkeypatch.setattr(Files, "read", short)
    second.write(1, ROWS)
    assert (second.visible, cut) == (1, [0])


def test_a_file_that_is_refused_and_not_there_is_not_called_another(
    sinks: tuple[UrlSink, UrlSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules of a bucket may refuse an upload with the status of a name that is taken."""
    monkeypatch.setattr(Files, "create", lambda *given: False)
    with pytest.raises(SinkError, match="refuses it as if it were there, and it is not"):
        sinks[0].write(1, ROWS)
    assert sinks[0].visible == 0
