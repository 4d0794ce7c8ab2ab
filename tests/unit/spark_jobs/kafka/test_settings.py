"""Settings of librdkafka in a resource: every one can be given, unknown ones and bare secrets are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.kafka import KafkaSink, KafkaSource
from reprise.spark_jobs.kafka.settings import SecretError, Settings
from reprise.spark_jobs.topology import load_text

SOURCE: dict[str, Any] = {"brokers": "127.0.0.1:1", "topics": ["t"], "columns": {"id": "int64"}}
SINK: dict[str, Any] = {"brokers": "127.0.0.1:1", "topic": "t"}


@pytest.mark.parametrize(
    ("config", "field", "reason"),
    [
        ({"fetch.wait.max.msec": 5}, "config.fetch.wait.max.msec", "No such configuration property"),
        ({"fetch.wait.max.ms": "soon"}, "config.fetch.wait.max.ms", "Invalid value"),
        ({"security.protocol": "telnet"}, "config.security.protocol", "Invalid value"),
        ({"enable.auto.commit": True}, "config.enable.auto.commit", "is set by Reprise"),
        ({"bootstrap.servers": "x"}, "config.bootstrap.servers", "give `brokers`"),
        ({"sasl.password": "hunter2"}, "config.sasl.password", "is a secret"),
        ({"sasl.password": {"vault": "x"}}, "config.sasl.password", "a reference is"),
        ({"sasl.passwort": {"env": "X"}}, "config.sasl.passwort", "No such configuration property"),
        ({"client.id": ["a"]}, "config.client.id", "expected text"),
        (["acks"], "config", "expected a mapping"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(config: Any, field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as error:
        KafkaSource(**SOURCE, config=config)
    assert error.value.field == field
    assert "hunter2" not in str(error.value)


def test_any_setting_of_librdkafka_can_be_given() -> None:
    found = KafkaSource(
        **SOURCE,
        config={"fetch.min.bytes": 7, "security.protocol": "sasl_ssl", "isolation.level": "read_uncommitted"},
    )
    made = found.settings.resolve("b:1")
    assert made["fetch.min.bytes"] == "7"
    assert made["isolation.level"] == "read_uncommitted"
    assert (
        KafkaSink(**SINK, config={"compression.type": "zstd", "linger.ms": 50}).settings.resolve("b:1")[
            "linger.ms"
        ]
        == "50"
    )


def test_a_secret_is_followed_in_the_process_and_never_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("KAFKA_USER", "reprise-user")
    settings = Settings(
        {"sasl.password": {"file": str(tmp_path / "password")}, "sasl.username": {"env": "KAFKA_USER"}}
    )
    made = settings.resolve("b:1", {"client.id": "c"})
    assert (made["sasl.password"], made["sasl.username"], made["client.id"]) == (
        "hunter2",
        "reprise-user",
        "c",
    )
    assert "hunter2" not in repr(settings)
    assert settings.clean("login reprise-user/hunter2 failed") == "login (secret)/(secret) failed"


@pytest.mark.parametrize("reference", [{"env": "NOT_SET_ANYWHERE"}, {"file": "/nowhere/at/all"}])
def test_a_reference_that_leads_nowhere_says_which(reference: dict[str, str]) -> None:
    with pytest.raises(SecretError, match=next(iter(reference.values()))):
        Settings({"sasl.password": reference}).resolve("b:1")


TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: t}
spec:
  sources:
    - name: in
      class: reprise.spark_jobs.kafka:KafkaSource
      with:
        brokers: 127.0.0.1:1
        topics: [a]
        columns: {id: int64}
  operators:
    - name: out
      class: reprise.spark_jobs.operators:Filter
      with: {where: id > 0}
      inputs: [{from: in}]
      output:
        sink:
          class: reprise.spark_jobs.kafka:KafkaSink
          with:
            brokers: 127.0.0.1:1
            topic: b
            config: {linger.msec: 5}
"""


def test_a_mistake_in_a_topology_names_field_and_line() -> None:
    with pytest.raises(SpecError) as error:
        load_text(TOPOLOGY, "t.yaml")
    assert error.value.field == "spec.operators[out].output.sink.with.config.linger.msec"
    assert "No such configuration property" in error.value.reason
    assert "line 24" in error.value.reason
    assert load_text(TOPOLOGY.replace("linger.msec", "linger.ms")).operators[0].output is not None


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"topics": []}, "topics"),
        ({"pattern": "a.*"}, "topics"),
        ({"start": "middle"}, "start"),
        ({"on_bad_record": "dead-letter"}, "dead_letters"),
        ({"on_offsets_lost": "ignore"}, "on_offsets_lost"),
        ({"time": {"columns": "x"}}, "time.columns"),
        ({"time": {"column": "x"}}, "time.column"),
        ({"columns": {"id": "int64", "time": "int64"}}, "columns.time"),
        ({"columns": {"at": "int64", "time": "int64"}, "time": {"column": "at"}}, "columns.time"),
        ({"columns": {"kafka_key": "string"}, "metadata": ["key"]}, "columns.kafka_key"),
        ({"metadata": ["headers"]}, "metadata"),
        ({"brokers": []}, "brokers"),
        ({"rate": 0}, "rate"),
    ],
)
def test_a_source_refuses_what_it_cannot_do(more: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as error:
        KafkaSource(**{**SOURCE, **more})
    assert error.value.field == field


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"mode": "upsert"}, "key"),
        ({"format": "arrow", "key": ["id"]}, "key"),
        ({"delete": "gone"}, "delete"),
        ({"on_too_large": "dead-letter"}, "dead_letters"),
        ({"buffer": "much"}, "buffer"),
        ({"topic": ""}, "topic"),
        ({"format": "avro"}, "avro"),
        ({"format": "xml"}, "format"),
    ],
)
def test_a_sink_refuses_what_it_cannot_do(more: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as error:
        KafkaSink(**{**SINK, **more})
    assert error.value.field == field
