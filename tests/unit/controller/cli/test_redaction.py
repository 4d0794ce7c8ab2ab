"""Secrets that were planted in every place where one has been seen do not come out; what is no secret does."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from reprise.controller.cli.bundle import LISTING, write_bundle
from reprise.controller.cli.redact import REDACTED, Redactor, is_sensitive, known_secrets
from reprise.controller.errors import ReportError

PLANTED = "hunter2-Zq9"
STRUCTURED = {
    "spec": {
        "sources": [{"with": {"settings": {"sasl.password": PLANTED, "sasl.username": "app"}}}],
        "env": [{"name": "DB_PASSWORD", "value": PLANTED}, {"name": "LEVEL", "value": "info"}],
        "sasl.jaas.config": f'ScramLoginModule required username="app" password="{PLANTED}";',
        "url": f"postgresql://app:{PLANTED}@db:5432/x",
        "annotation": json.dumps({"ssl.key.password": PLANTED}),
    },
    "secretKey": PLANTED,
    "auth": f"app:{PLANTED}",
}
LINES = [
    f"sasl.password={PLANTED}",
    f"connecting with ssl.keystore.password: {PLANTED} to broker",
    f"addauth digest reprise:{PLANTED}",
    f"ACL digest:reprise:{PLANTED}:cdrwa",
    f"[('digest', 'reprise:{PLANTED}')]",
    f"Authorization: Bearer {PLANTED}abcdef",
    f"export AWS_SECRET_ACCESS_KEY={PLANTED}",
    f'required username="x" password="{PLANTED}";',
    f"s3a://key:{PLANTED}@bucket/path",
    f'{{\\"sasl.password\\": \\"{PLANTED}\\"}}',
    f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\n-----END RSA PRIVATE KEY-----",
    f"env SPARK_AUTH_TOKEN='{PLANTED}'",
]


def test_structures_lose_their_secrets_and_nothing_else() -> None:
    found = json.loads(Redactor().content("x.json", json.dumps(STRUCTURED).encode()))
    assert PLANTED not in json.dumps(found)
    assert found["spec"]["sources"][0]["with"]["settings"]["sasl.username"] == "app"
    assert found["spec"]["env"][1] == {"name": "LEVEL", "value": "info"}
    assert found["spec"]["env"][0] == {"name": "DB_PASSWORD", "value": REDACTED}
    assert found["spec"]["url"] == f"postgresql://app:{REDACTED}@db:5432/x"


@pytest.mark.parametrize("line", LINES)
def test_lines_of_logs_lose_their_secrets(line: str) -> None:
    redactor = Redactor()
    assert PLANTED not in redactor.text(line)
    assert redactor.count >= 1


@pytest.mark.parametrize(
    "text",
    [
        "event=decided rule=plan-first incident=inc-000012 phase=recovering reason='restores 3 partitions'",
        "inc-000012-p1 first: restores 2 partitions and brings back count.1",
        "https://example.com:8080/path?x=1",
        "2026-01-01 12:00:00,123 INFO kafka.consumer subscribed to tweets@3",
        '{"assignment": {"tokenizer.0": "n3#1"}}',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_references_to_secrets_stay_as_they_say_where_to_look() -> None:
    value = {"sasl.password": {"env": "KAFKA_PASSWORD"}, "ssl.key.password": {"file": "/run/secrets/key"}}
    assert Redactor().value(value) == value


def test_secrets_of_this_process_go_wherever_they_stand() -> None:
    environment = {"KAFKA_PASSWORD": "correct horse", "HOME": "/root", "REPRISE_ZK_AUTH": "/run/auth"}
    known = known_secrets(environment, [b"reprise:tr0ub4dor\n"])
    text = Redactor(known).text("somebody logged correct horse and tr0ub4dor in /root with /run/auth")
    assert text == f"somebody logged {REDACTED} and {REDACTED} in /root with /run/auth"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("zk_auth", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("accessToken", True),
        ("keys", False),
        ("partition", False),
        ("tokenizer.0", False),
        ("group.id", False),
    ],
)
def test_names(name: str, secret: bool) -> None:
    assert is_sensitive(name) is secret


def test_a_bundle_lists_what_is_in_it_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    files = {
        "a.json": json.dumps(STRUCTURED).encode(),
        "logs/b.log": "\n".join(LINES).encode(),
        "c.bin": b"\xff\x00",
    }
    entries = write_bundle(path, files, Redactor(), 1_000_000.0)
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    assert set(found) == {f"reprise-report/{name}" for name in (LISTING, *files)}
    assert PLANTED.encode() not in b"".join(found.values())
    listing = found[f"reprise-report/{LISTING}"].decode()
    assert all(entry.name in listing for entry in entries)
    assert next(e.redacted for e in entries if e.name == "a.json") >= 5
    with pytest.raises(ReportError, match="File exists"):
        write_bundle(path, files, Redactor(), 1.0)
