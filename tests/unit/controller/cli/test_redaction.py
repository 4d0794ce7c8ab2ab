"""Secrets that were planted in every place where one has been seen do not come out; what is no secret does."""

from __future__ import annotations

import base64
import json
import os
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from reprise.controller.cli.bundle import LISTING, write_bundle
from reprise.controller.cli.redact import REDACTED, Redactor, is_sensitive, known_secrets
from reprise.controller.cli.report_command import _referenced, _secret_files
from reprise.controller.errors import ReportError
from reprise.controller.zookeeper.access import AUTH, SECRET_FILES

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


KNOWN = 'corr"ect hörse/7'


@pytest.mark.parametrize(
    "text",
    [
        f"it was {KNOWN}.",
        json.dumps({"said": KNOWN}),
        json.dumps({"said": KNOWN}, ensure_ascii=False),
        f"https://host/x?y={quote(KNOWN, safe='')}&z=1",
        f"data: {{entry: {base64.b64encode(KNOWN.encode()).decode()}}}",
    ],
)
def test_a_known_secret_goes_in_whatever_form_it_stands(text: str) -> None:
    redactor = Redactor([f" {KNOWN}\n"])
    found = redactor.text(text)
    assert redactor.count == 1 and REDACTED in found
    assert "hörse" not in found and "rse" not in found and "Y29yc" not in found


def test_a_known_secret_that_is_no_text_of_utf_8_hinders_nothing(tmp_path: Path) -> None:
    """Variables may hold any bytes."""
    secret = os.fsdecode(b"p\xffssw0rd")
    redactor = Redactor(known_secrets({"REPRISE_PASSWORD": secret}))
    for said in (secret, "p%FFssw0rd", base64.b64encode(b"p\xffssw0rd").decode()):
        assert redactor.text(f"x {said} y") == f"x {REDACTED} y"


def test_a_known_secret_that_is_a_part_of_another_leaves_nothing_of_it() -> None:
    assert Redactor(["abcd", "abcd-efgh"]).text("x abcd-efgh y abcd z") == f"x {REDACTED} y {REDACTED} z"
    assert Redactor(["abc", ""]).text("abc abcd") == "abc abcd", (
        "shorter ones are words that stand everywhere"
    )


@pytest.mark.parametrize(
    ("value", "goes"), [(12345678, True), (0.5, True), (True, False), (0, False), (None, False)]
)
def test_a_password_of_digits_is_one(value: object, goes: bool) -> None:
    assert Redactor().value({"with": {"password": value}}) == {
        "with": {"password": REDACTED if goes else value}
    }


def test_a_mapping_that_is_more_than_a_reference_is_no_reference() -> None:
    found = Redactor().value({"password": {"env": "NAME", "value": PLANTED}, "tokens": [PLANTED]})
    assert found == {"password": REDACTED, "tokens": REDACTED}


def test_secrets_behind_references_are_known_though_another_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their-key").write_text("from-a-file\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.setenv("THEIRS", "from-a-variable")
    spec = {
        "a": {"file": "no\0name"}, "b": {"file": str(tmp_path / "folder")}, "c": {"file": str(tmp_path / "none")},
        "d": [{"file": str(tmp_path / "their-key")}, {"env": "THEIRS"}, {"env": "NOT_THERE"}, {"file": 7}],
    }  # fmt: skip
    files = {"spec.json": json.dumps(spec).encode(), "topology.json": b"[[[", "x.json": b"{}"}
    assert _referenced(files) == {"from-a-file", "from-a-variable"}
    monkeypatch.setenv(AUTH, str(tmp_path))
    (tmp_path / SECRET_FILES[0]).mkdir()
    (tmp_path / SECRET_FILES[1]).write_bytes(b"reprise:pw")
    assert list(_secret_files(os.environ)) == [b"reprise:pw"]


def test_a_file_that_only_claims_to_be_json_is_taken_for_text() -> None:
    found = Redactor().content("x.json", f'{{"password": "{PLANTED}"'.encode()).decode()
    assert found == f'{{"password": {REDACTED}'
    assert Redactor().content("deep.json", b"[" * 5000) == b"[" * 5000
