"""A store whose client is not installed: one line that says field, scheme and what to install, before anything starts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from click.testing import CliRunner

from reprise.controller.cli import main
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.storage.clients import EXTRAS, missing_client
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import load_text, override, to_json
from tests.unit.spark_jobs.state.test_storage import SMALL

ELSEWHERE = SMALL.replace(
    "  sources:",
    "  checkpoint: {location: 's3://bucket/x', standby: [/mirror, 'gs://bucket/y']}\n"
    "  sink: {location: 'az://c/z'}\n  sources:",
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no extra were installed."""
    registry = importlib.import_module(
        "fsspec.registry"
    )  # `fsspec.registry` as an attribute is something else
    for scheme in EXTRAS:
        gone = {"class": f"reprise_has_no_such_package.{scheme}:Client", "err": "Install it"}
        monkeypatch.setitem(registry.known_implementations, scheme, gone)
        monkeypatch.delitem(registry._registry, scheme, raising=False)


def test_each_location_is_told_with_its_scheme_and_what_to_install(bare: None) -> None:
    with pytest.raises(SpecError) as refused:
        load_text(ELSEWHERE)
    need = "URLs that begin with {}:// need a package that is not installed here: pip install 'reprise-streams[{}]'"
    assert {e.field: e.reason.partition(" (")[0] for e in refused.value.all} == {
        "spec.checkpoint.location": need.format("s3", "s3"),
        "spec.checkpoint.standby[1]": need.format("gs", "gcs"),
        "spec.sink.location": need.format("az", "azure"),
    }


def test_validate_says_it_in_one_line(bare: None, tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(SMALL.replace("  sources:", "  sink: {location: 's3://bucket/x'}\n  sources:"))
    done = CliRunner().invoke(main, ["validate", "-f", str(file)])
    assert done.exit_code != 0 and "Traceback" not in done.output
    assert [
        line
        for line in done.output.splitlines()
        if "spec.sink.location" in line and "reprise-streams[s3]" in line
    ]
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize("scheme", sorted(EXTRAS))
def test_the_extras_bring_what_the_schemes_need(scheme: str) -> None:
    assert missing_client(f"{scheme}://bucket/x") == ""


@pytest.mark.parametrize(
    "location", ["/data/x", "data", "file:///data", "memory://x", "simplecache::s3://bucket/x"]
)
def test_other_locations_need_nothing(location: str) -> None:
    assert missing_client(location) == ""


def test_a_chained_url_needs_the_clients_of_all_its_parts(bare: None) -> None:
    assert "reprise-streams[s3]" in missing_client("simplecache::s3://bucket/x")


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
def test_a_location_behind_a_cache_is_refused_by_field(cache: str, tmp_path: Path) -> None:
    behind, store = Files(f"{cache}::memory://{tmp_path.name}"), Files(f"memory://{tmp_path.name}")
    store.replace("a", b"first")
    assert behind.read("a") == b"first"
    store.replace("a", b"second")
    assert behind.read("a") == b"first", "this is why"
    text = ELSEWHERE.replace("s3://", f"{cache}::s3://").replace("az://", f"{cache}::az://")
    with pytest.raises(SpecError) as refused:
        load_text(text)
    reason = f"{cache}:: answers with copies of files that were replaced since: name the store without it"
    assert {e.field: e.reason.partition(" (")[0] for e in refused.value.all} == {
        "spec.checkpoint.location": reason,
        "spec.sink.location": reason,
    }


def test_a_path_at_the_end_of_a_chain_is_no_scheme() -> None:
    assert missing_client("zip://x::/data/a.zip") == ""
    assert missing_client("simplecache::zip://x::data/a.zip") == ""


def test_no_client_of_an_object_store_keeps_listings_where_it_stands_in_a_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, object]] = []

    def noted(location: str, **options: object) -> tuple[object, str]:
        given.append(options)
        return SimpleNamespace(protocol="file"), location

    monkeypatch.setattr(fsspec.core, "url_to_fs", noted)
    for location in ("s3://b/x", "simplecache::s3://b/x", "/data/x"):
        Files(location)
    assert given == [{"use_listings_cache": False}, {"s3": {"use_listings_cache": False}}, {}]


def test_a_scheme_that_nobody_knows_is_told_too() -> None:
    assert (
        missing_client("warp://x") == "no package that is installed here knows URLs that begin with warp://"
    )


def test_who_only_looks_at_a_topology_needs_no_client(bare: None) -> None:
    assert load_text(ELSEWHERE, data=False).sink_location == "az://c/z"


@pytest.mark.slow
def test_a_driver_ends_with_one_line_before_it_connects_to_anything(tmp_path: Path) -> None:
    resource = override(load_text(SMALL), {"checkpoint.location": "oss://bucket/x"})
    document = tmp_path / "topology.json"
    document.write_text(to_json(resource))
    command = [
        sys.executable,
        "-m",
        "reprise.controller.driver",
        "--zk=127.0.0.1:1",
        "--root=/x",
        "--master=spark://127.0.0.1:1",
    ]
    command += [f"--topology={document}", "--sink=/x", "--checkpoints=oss://bucket/x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "refused: spec.checkpoint.location: URLs that begin with oss:// need a package" in done.stderr
