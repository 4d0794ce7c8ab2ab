"""Files as `kubectl apply -f` takes them: streams of documents, lists, JSON, standard input; and those that no one reads."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import load, load_text, load_topology

BODY = """\
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata:
  name: words
spec:
  sources:
    - name: tweets
      class: reprise.sources:HashtagSource
      with: {rate: 10, batches: 3, tags: 10}
  operators:
    - name: out
      class: reprise.operators:Sink
      inputs: [{from: tweets}]
      output: {}
"""
OBJECT: dict[str, Any] = yaml.safe_load(BODY)
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: streams}\n"
LIST = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(NAMESPACE), OBJECT]})


@pytest.mark.parametrize(
    "text",
    [
        f"---\n# Source: chart/templates/topology.yaml\n{BODY}",
        f"{BODY}---\n",
        f"{BODY}---\n# Source: chart/templates/off.yaml\n",
        f"# Source: a\n---\n# nothing here\n---\n{BODY}",
        f"{BODY}...\n",
        BODY.replace("name: words\n", "name:\twords\t# a comment\n").replace("]", "\t]\t"),
        f"{BODY}---\n{NAMESPACE}",
        f"{NAMESPACE}---\n{BODY}",
        LIST,
        f"{NAMESPACE}---\n{LIST}",
        json.dumps(OBJECT, indent="\t"),
        f"\n{json.dumps(OBJECT, indent=2)}",
        f"{json.dumps(yaml.safe_load(NAMESPACE))}\n{json.dumps(OBJECT, indent=2)}\n",
        LIST.replace("kind: List", "kind: StreamTopologyList"),
        json.dumps(yaml.safe_load(LIST) | {"kind": "StreamTopologyList"}),
        BODY.replace("name: words\n", "name: words\n  labels:\n  annotations:\n  namespace:\n"),
        BODY.replace("\n", "\r\n"),
        f"\ufeff{BODY}",
    ],
)
def test_what_kubectl_takes_is_taken(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = load_text(BODY)
    assert load_text(text) == wanted
    (file := tmp_path / "words.yaml").write_bytes(text.encode())
    assert load_topology(file) == wanted
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    load._standard_input.cache_clear()
    assert load_topology("-") == wanted
    assert load_topology("-") == wanted, "a command may read it twice"
    load._standard_input.cache_clear()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{BODY}---\n{BODY}", "expected one StreamTopology, found 2 in 2 documents (words.yaml)"),
        (f"{NAMESPACE}---\n{NAMESPACE}", "expected one StreamTopology, found 0 in 2 documents (words.yaml)"),
        ("", "found nothing"),
        ("---\n---\n", "found nothing"),
        ("# nothing\n", "found nothing"),
        (
            BODY.replace("words", "w\u00f6rter").encode("latin-1"),
            "is not UTF-8 (words.yaml, line 4); save it as UTF-8",
        ),
        (BODY.encode("utf-16"), "is UTF-16 (words.yaml); save it as UTF-8"),
    ],
)
def test_a_file_that_is_not_one_topology_is_refused(text: str | bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "words.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as caught:
        load_topology(file)
    assert reason in caught.value.reason


def test_a_mistake_has_its_line_in_the_whole_stream() -> None:
    with pytest.raises(SpecError, match=r"spec\.sources\[tweets\]\.clas: .*line 12") as caught:
        load_text(f"{NAMESPACE}---\n{BODY.replace('class: reprise.sources', 'clas: reprise.sources')}")
    assert caught.value.field == "spec.sources[tweets].clas"
    objects = f'{{"kind": "Namespace"}}\n{json.dumps(OBJECT, indent=2).replace("tweets", "Tweets", 1)}'
    with pytest.raises(SpecError, match=r"spec\.sources\[0\]\.name: .*line 11"):
        load_text(objects)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ("labels: {a: 'b c'}", "metadata.labels.a"),
        (f"labels: {{a: {'x' * 64}}}", "metadata.labels.a"),
        (f"labels: {{{'k' * 64}: x}}", "metadata.labels"),
        ("labels: {a/b/c: x}", "metadata.labels"),
        ("labels: {a: 5}", "metadata.labels.a"),
        ("annotations: {'bad key!': x}", "metadata.annotations"),
        (f"annotations: {{a: {'é' * (1 << 17)}}}", "metadata.annotations"),
    ],
)
def test_labels_that_an_api_server_refuses_are_refused(metadata: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_text(BODY.replace("name: words\n", f"name: words\n  {metadata}\n"))
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3:20", "3:20"),
        ("190:20:30.15", "190:20:30.15"),
        ("2025-01-01", "2025-01-01"),
        ("2025-01-01T10:00:00+02:00", "2025-01-01T10:00:00+02:00"),
        ("2025-13-45", "2025-13-45"),
        ("1e3", 1000),
        ("12e03", 12000),
        ("08", 8),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1.0", 1),
        ("1.5", 1.5),
        ("-7", -7),
        ("1e-7", 1e-7),
        ("99999999999999999999", 99999999999999999999),
        ("~", None),
        ("true", True),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_plain_word_is_what_kubectl_reads(written: str, value: Any) -> None:
    _, found = load._parse(f"kind: StreamTopology\nx: {written}\n", "words.yaml")
    assert (found["x"], type(found["x"])) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"\\/"', "/"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"a\x85b"', "a\x85b"),
        ("1e3", 1000),
        ("1E-7", 1e-7),
    ],
)
def test_json_that_is_no_yaml_is_read_as_json(written: str, value: Any) -> None:
    _, found = load._parse(f'{{"kind": "StreamTopology", "x": {written}}}', "words.json")
    assert found["x"] == value


@pytest.mark.parametrize("text", ["x: !!bool abc", "x: !!timestamp abc", "x: !!python/object:os.system {}"])
def test_a_tag_that_does_not_fit_is_a_mistake(text: str) -> None:
    with pytest.raises(SpecError, match="not YAML"):
        load_text(text)
