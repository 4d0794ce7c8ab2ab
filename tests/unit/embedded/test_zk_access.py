"""Credentials for ZooKeeper: obeyed or refused, and what is written with them is closed to others."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from controller.embedded.errors import ConfigError
from controller.embedded.java import find_java
from controller.embedded.jvm import Jvm
from controller.embedded.warden import Warden
from controller.embedded.zk_access import AUTH, TLS, client_options
from controller.embedded.zookeeper import ZooKeeperServer


def test_without_variables_nothing_is_asked_for() -> None:
    assert client_options({}) == {} == client_options({TLS: "", AUTH: ""})


def test_tls_names_its_files_and_checks_the_server(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("x")
    found = client_options({TLS: str(tmp_path)})
    assert found["use_ssl"] and found["verify_certs"]
    assert [Path(found[k]).name for k in ("ca", "certfile", "keyfile")] == ["ca.crt", "tls.crt", "tls.key"]
    KazooClient("127.0.0.1:1", **found)  # takes them all


@pytest.mark.parametrize("variable", [TLS, AUTH])
def test_a_missing_file_is_named_and_nothing_falls_back(variable: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: there is no file {tmp_path}"):
        client_options({variable: str(tmp_path)})


@pytest.mark.parametrize("text", ["", "user", "user:", ":password"])
def test_what_is_no_digest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "digest").write_text(text)
    with pytest.raises(ConfigError, match="user:password"):
        client_options({AUTH: str(tmp_path)})


@pytest.mark.slow
def test_what_one_user_writes_no_other_reads(tmp_path: Path) -> None:
    with closing(Warden()) as warden:
        jvm = Jvm(find_java(warden.scratch / "java"), warden.scratch / "log4j2.properties")
        jvm.write_log_config()
        server = ZooKeeperServer(jvm, warden)
        server.start()
        clients = {}
        for name in ("ours", "theirs"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "digest").write_text(f"{name}:secret\n")
            options = client_options({AUTH: str(tmp_path / name)})
            clients[name] = KazooClient(server.hosts, timeout=10, **options)
            clients[name].start(timeout=30)
        clients["nobody"] = KazooClient(server.hosts, timeout=10)
        clients["nobody"].start(timeout=30)
        clients["ours"].ensure_path("/reprise/ns/t")
        transaction = clients["ours"].transaction()
        transaction.create("/reprise/ns/t/desired", b"1")
        transaction.commit()
        assert clients["ours"].get("/reprise/ns/t/desired")[0] == b"1"
        for other in ("theirs", "nobody"):
            for path in ("/reprise/ns/t/desired", "/reprise/ns/t"):
                with pytest.raises(NoAuthError):
                    clients[other].get(path)
            with pytest.raises(NoAuthError):
                clients[other].create("/reprise/ns/t/incident", b"mine")
        for client in clients.values():
            client.stop()
            client.close()
