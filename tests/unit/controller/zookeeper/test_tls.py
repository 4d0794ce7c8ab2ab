"""ZooKeeper's key store out of a Secret's three files, and the lines of its configuration: what is missing or of another
kind is named, and nobody else can read the key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper.tls import client_lines, key_store, peer_lines

KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\ndef\n-----END CERTIFICATE-----"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.mkdir()
    for name, text in (("tls.key", KEY), ("tls.crt", CERTIFICATE), ("ca.crt", "authority")):
        (made / name).write_text(text)
    return made


def test_key_and_certificate_are_one_file_for_this_user_alone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "store.pem"
    key_store(folder, target)
    assert target.read_text() == f"{KEY}\n{CERTIFICATE}"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_store_of_before_is_replaced_and_does_not_keep_its_rights(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "store.pem"
    target.write_text("old")
    target.chmod(0o644)
    key_store(folder, target)
    assert "old" not in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["tls.key", "tls.crt", "ca.crt"])
def test_a_file_that_is_not_there_is_named_and_nothing_is_written(
    folder: Path, tmp_path: Path, name: str
) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=rf"{name}: No such file"):
        key_store(folder, tmp_path / "store.pem")
    assert not (tmp_path / "store.pem").exists()


@pytest.mark.parametrize("kind", ["RSA ", "EC ", "DSA "])
def test_a_key_of_a_form_that_it_does_not_read_is_refused_with_what_to_do(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "store.pem"
    target.write_text("the one before")
    (folder / "tls.key").write_text(KEY.replace("PRIVATE", f"{kind}PRIVATE"))
    with pytest.raises(ConfigError, match=r"tls\.key: ZooKeeper reads keys in PKCS #8 alone \(openssl pkcs8"):
        key_store(folder, target)
    assert target.read_text() == "the one before"


def test_bytes_that_are_no_text_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "tls.crt").write_bytes(b"\x30\x82\xff\xfe")
    with pytest.raises(ConfigError, match=r"tls\.crt: no text; ZooKeeper reads PEM alone"):
        key_store(folder, tmp_path / "store.pem")


def settings(lines: list[str]) -> dict[str, str]:
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "no setting is there twice"
    return found


def test_clients_have_to_show_a_certificate_and_have_no_other_port(tmp_path: Path) -> None:
    found = settings(client_lines(tmp_path / "secret", tmp_path / "store.pem", "10.0.0.9", 2281))
    assert (found["secureClientPort"], found["secureClientPortAddress"]) == ("2281", "10.0.0.9")
    assert found["ssl.clientAuth"] == "need"
    assert found["ssl.keyStore.location"] == str(tmp_path / "store.pem")
    assert found["ssl.trustStore.location"] == str(tmp_path / "secret" / "ca.crt")
    assert found["ssl.hostnameVerification"] == "false", "pods of clients have no names that last"
    assert "clientPort" not in found and "Netty" in found["serverCnxnFactory"]


def test_servers_ask_each_other_for_certificate_and_name(tmp_path: Path) -> None:
    found = settings(peer_lines(tmp_path, tmp_path / "store.pem"))
    assert found["sslQuorum"] == "true"
    assert found["ssl.quorum.clientAuth"] == "need"
    assert found["ssl.quorum.hostnameVerification"] == "true"
    assert set(found["ssl.quorum.enabledProtocols"].split(",")) == {"TLSv1.3", "TLSv1.2"}
