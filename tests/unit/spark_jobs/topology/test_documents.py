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
from reprise.spark_jobs.topology import load_text, load_topology

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
        f"{BODY}---\n{NAMESPACE}",
        f"{NAMESPACE}---\n{BODY}",
        LIST,
        f"{NAMESPACE}---\n{LIST}",
        json.dumps(OBJECT, indent="\t"),
        f"\n{json.dumps(OBJECT, indent=2)}",
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
    assert load_topology("-") == wanted


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


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ("labels: {a: 'b c'}", "metadata.labels.a"),
        (f"labels: {{a: {'x' * 64}}}", "metadata.labels.a"),
        (f"labels: {{{'k' * 64}: x}}", "metadata.labels"),
        ("labels: {a/b/c: x}", "metadata.labels"),
        ("labels: {a: 5}", "metadata.labels.a"),
        ("annotations: {'bad key!': x}", "metadata.annotations"),
    ],
)
def test_labels_that_an_api_server_refuses_are_refused(metadata: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_text(BODY.replace("name: words\n", f"name: words\n  {metadata}\n"))
    assert caught.value.field.startswith(field)
