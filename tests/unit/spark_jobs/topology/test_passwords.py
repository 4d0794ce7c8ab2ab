"""A password in a URL among a class's parameters: refused where the class is the library's, and else shown nowhere."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller import logs
from reprise.controller.cli.bundle import write_bundle
from reprise.controller.cli.redact import Redactor
from reprise.controller.driver.report import progress_of
from reprise.controller.status import document, plain
from reprise.controller.status.records import records
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import encode_progress
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.credentials import holds, redacted
from reprise.spark_jobs.engine.progress import Progress
from reprise.spark_jobs.errors import SpecError, StepError
from reprise.spark_jobs.topology import StreamTopology, expand, from_object, make_operator
from tests.support.oncall import after_the_burst

SECRET = "hunter2-Zq9"
URL = f"postgresql://app:{SECRET}@db:5432/x"


class Own(Operator):
    """With a connection of its own."""

    def __init__(self, target: dict[str, Any], refuse: bool = False) -> None:
        if refuse:
            raise ConnectionError(f"cannot reach {target['urls'][0]}")

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, Any]:
        return state, None


def topology(**parts: Any) -> StreamTopology:
    source = {
        "name": "in",
        "class": "reprise.spark_jobs.sources:HashtagSource",
        "with": {"rate": 1},
        **parts.get("source", {}),
    }
    operator = {
        "name": "out", "class": "reprise.spark_jobs.operators:Sink", "inputs": [{"from": "in"}], "output": {},
        **parts.get("operator", {}),
    }  # fmt: skip
    spec = {"sources": [source], "operators": [operator]}
    return from_object(
        {
            "apiVersion": "reprise.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "t"},
            "spec": spec,
        }
    )


def own(**more: Any) -> StreamTopology:
    parameters = {"target": {"urls": [URL]}, **more}
    return topology(
        operator={"class": "tests.unit.spark_jobs.topology.test_passwords:Own", "with": parameters}
    )


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (
            {"source": {"with": {"paths": ["/a", f"https://me:{SECRET}@host/x.csv"]}}},
            "sources[in].with.paths[1]",
        ),
        ({"source": {"with": {"data": f"https://host/x?sig={SECRET}"}}}, "sources[in].with.data"),
        ({"operator": {"with": {"a": {"b": URL}}}}, "operators[out].with.a.b"),
        (
            {
                "operator": {
                    "output": {
                        "sink": {
                            "class": "reprise.spark_jobs.kafka:KafkaSink",
                            "with": {"config": {"schema.registry.url": f"http://u:{SECRET}@registry"}},
                        }
                    }
                }
            },
            "operators[out].output.sink.with.config.schema.registry.url",
        ),
    ],
)
def test_a_class_of_the_library_takes_none(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match="holds a URL with a password or token") as refused:
        topology(**parts)
    assert refused.value.field == f"spec.{field}"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"PUT https://b.s3.amazonaws.com/x?X-Amz-Algorithm=AWS4&X-Amz-Signature={SECRET} refused",
        f"https://b.s3.amazonaws.com/x?X-Amz-Security-Token={SECRET}",
        f"https://a.blob.core.windows.net/c?sv=2024&sig={SECRET}",
        f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={SECRET};EndpointSuffix=core.windows.net",
        f"SharedAccessSignature = {SECRET}",
        f"Authorization: Bearer ya29.{SECRET}-0123456789",
        f"aws_secret_access_key={SECRET}",
        f"AWS_SECRET_ACCESS_KEY = {SECRET}",
        f"Client(aws_session_token='{SECRET}')",
        f"{{'aws_secret_access_key': '{SECRET}'}}",
    ],
)
def test_what_clients_of_object_stores_may_repeat_is_taken_out(text: str) -> None:
    assert holds(text) and SECRET not in redacted(text) and not holds(redacted(text))


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of the token",
        "https://host:8080/x?sigma=1#a:b@c",
        "kafka-1:9092,kafka-2:9092",
        "price > 2 // a:b@c",
        "s3://bucket/a:b@c",
        "hdfs://me@name-node:8020/x",
        "https://host/?design=1",
        "set aws_secret_access_key in the environment",
        "accountKey == 12345678 and bearer authentication-scheme",
        "accountKey = 5",
    ],
)
def test_what_holds_no_password_is_taken_and_stays(text: str) -> None:
    assert not holds(text) and redacted(text) == text
    topology(source={"with": {"rate": text}})


def test_an_own_class_gets_what_its_topology_says() -> None:
    (operator,) = own().operators
    assert operator.parameters["target"]["urls"] == [URL]
    make_operator(operator)


def test_what_is_shown_of_an_own_class_has_no_password(tmp_path: Path) -> None:
    resource = own(refuse=True)
    with pytest.raises(SpecError) as refused:
        make_operator(resource.operators[0])
    assert "cannot reach postgresql://app:(redacted)@db" in str(refused.value)
    poison = str(StepError("out", "out.0", 7, ConnectionError(f"cannot reach {URL}")))
    told = Progress(
        1, 1, ("n1#1",), {}, {"out.0": Failure(FailureKind.POISON, URL)}, stuck=f"jobs fail: {URL}"
    )
    progress = progress_of(1, told, [f"in.0: {URL} is away"], 1.0, 1, 60.0)
    seen = Observation(1.0, True, after_the_burst().nodes, progress)
    shown = [
        poison,
        encode_progress(progress).decode(),
        json.dumps(plain(document(expand(resource), seen))),
        json.dumps(records(seen)),
    ]
    for text in shown:
        assert SECRET not in text
    assert "app:(redacted)@db" in poison and "app:(redacted)@db" in shown[1]
    bundle = tmp_path / "bundle.tar.gz"
    write_bundle(bundle, {"spec.json": resource.document.encode()}, Redactor(), 1.0)
    with tarfile.open(bundle) as tar:
        kept = b"".join(f.read() for m in tar.getmembers() if (f := tar.extractfile(m)) is not None)
    assert SECRET.encode() not in kept and b"app:(redacted)@db:5432" in kept


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_line_of_a_log_has_none_whoever_wrote_it(form: str) -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.setup(form, stream=stream)
        try:
            raise ConnectionError(f"no answer from {URL}")
        except ConnectionError:
            logging.getLogger("of.a.client").exception(
                "event=trouble url=%s https://h/?token=%s", URL, SECRET
            )
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert "event" in stream.getvalue() or "trouble" in stream.getvalue()
    assert SECRET not in stream.getvalue()
