"""TLS with client certificates and passwords at once, on a real broker: what gets through, and what the user sees if not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import pipes
from tests.kafka.broker import Broker
from tests.kafka.certificates import Authority
from tools.kafka.server import KafkaCluster, with_certificate, with_passwords
from tools.testbed.local_engine import World

pytestmark = [pytest.mark.slow, pytest.mark.wide]
PASSWORD, KEY_PASSWORD = "hunter2", "key-hunter3"
ROWS = 40


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[KafkaCluster]:
    """A broker that wants a certificate of the authority and a password, and speaks nothing but TLS."""
    cluster = KafkaCluster()
    certificate, key = authority.issue("broker", cluster.host)
    cluster.properties |= with_passwords({"app": PASSWORD}, "app")
    cluster.properties |= with_certificate(certificate, key, authority.certificate)
    with cluster:
        yield cluster


def settings(authority: Authority, folder: Path, password: str = PASSWORD) -> dict[str, Any]:
    """As a resource has them: paths in the clear, secrets by reference."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = authority.issue("client", "127.0.0.1", KEY_PASSWORD)
    (folder / "password").write_text(f"{password}\n")
    (folder / "key-password").write_text(KEY_PASSWORD)
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": {"file": str(folder / "password")},
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": {"file": str(folder / "key-password")},
    }


def plain(config: dict[str, Any]) -> dict[str, str]:
    """The same for the test's own clients."""
    return {k: Path(v["file"]).read_text().strip() if isinstance(v, dict) else v for k, v in config.items()}


def begin(broker: Broker, folder: Path, config: dict[str, Any]) -> tuple[World, str]:
    """A pipe whose source and sink connect with `config`."""
    origin, target = broker.topic("in"), broker.topic("out")
    broker.send(origin, pipes.rows(ROWS))
    source = pipes.source(broker, origin, until=broker.ends(origin), batch_rows=10, config=config)
    return pipes.world(pipes.pipe(source, pipes.sink(broker, target, config=config)), folder, "a"), target


def wait(world: World, word: str, seconds: float = 180.0) -> str:
    """All problems said, once one of them has `word`; whatever was said by then if none has."""
    until = time.monotonic() + seconds
    world.run(lambda e: any(word in p for p in e.problems) or time.monotonic() > until or e.done)
    return " ".join(world.engine.problems)


def test_rows_go_through_with_certificate_key_and_password(
    guarded: KafkaCluster, authority: Authority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = settings(authority, tmp_path / "secrets")
    broker = Broker(guarded.bootstrap, plain(config))
    world, target = begin(broker, tmp_path, config)
    world.run(lambda e: e.done)
    assert sorted(row["id"] for row in broker.rows(target)) == list(range(ROWS))
    said = " ".join(world.engine.problems) + world.resource.document + "".join(capfd.readouterr())
    assert PASSWORD not in said
    assert KEY_PASSWORD not in said


def test_a_wrong_password_is_named_as_such_and_not_shown(
    guarded: KafkaCluster, authority: Authority, tmp_path: Path
) -> None:
    """Nothing is failed: the topology waits, and says what for."""
    broker = Broker(guarded.bootstrap, plain(settings(authority, tmp_path / "secrets")))
    world, _ = begin(broker, tmp_path, settings(authority, tmp_path / "wrong", "not-hunter2"))
    said = wait(world, "uthentication failed")
    assert "uthentication failed" in said, said
    assert "not-hunter2" not in said
    assert not world.engine.failed
    world.nodes.hosts["a"].close()


def test_a_broker_of_another_authority_is_not_trusted(
    guarded: KafkaCluster, authority: Authority, tmp_path: Path
) -> None:
    """The user sees that the certificate is the reason, and no row is sent or read."""
    config = settings(authority, tmp_path / "secrets")
    broker = Broker(guarded.bootstrap, plain(config))
    stranger = Authority(tmp_path / "stranger")
    world, target = begin(broker, tmp_path, {**config, "ssl.ca.location": str(stranger.certificate)})
    said = wait(world, "certificate verify failed")
    assert "certificate verify failed" in said, said
    assert broker.rows(target) == []
    world.nodes.hosts["a"].close()
