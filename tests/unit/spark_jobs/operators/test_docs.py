"""The documentation is right: its code runs, and its reference names every parameter and every field."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from pathlib import Path

import pytest

from reprise.spark_jobs import operators, sources
from reprise.spark_jobs.contract import Operator, Source
from reprise.spark_jobs.kafka import KafkaSink, KafkaSource
from reprise.spark_jobs.topology.schema import Closed

ROOT = Path(__file__).parents[4]
OPERATORS = (ROOT / "docs" / "operators.md").read_text()
TOPOLOGY = (ROOT / "docs" / "topology.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
KAFKA = (ROOT / "docs" / "kafka.md").read_text()
SECTION = re.compile(r"^### (.*?)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("module", "test"),
    [("busiest", "test_record"), ("often", "test_often"), ("silent", "test_silence")],
)
def test_the_operators_of_the_guide_pass_their_tests(
    module: str, test: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in BLOCK.findall(OPERATORS):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, module, raising=False)
    runpy.run_path(str(tmp_path / f"test_{module}.py"))[test]()


def test_the_python_of_the_topology_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = BLOCK.findall(TOPOLOGY)
    exec(compile(block, "docs/topology.md", "exec"), {})


CLASSES = [
    cls
    for module in (operators, sources)
    for cls in (getattr(module, name) for name in module.__all__)
    if inspect.isclass(cls) and issubclass(cls, Operator | Source) and not inspect.isabstract(cls)
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_the_reference_names_every_parameter(cls: type) -> None:
    sections = dict(SECTION.findall(OPERATORS))
    (body,) = (body for title, body in sections.items() if cls.__name__ in title.split(", "))
    for name in inspect.signature(cls).parameters:
        assert f"`{name}`" in body, f"{name} of {cls.__name__} is not documented"


def test_the_topology_page_names_every_field() -> None:
    models = [m for m in Closed.__subclasses__() if m.__name__ not in {"StreamTopologyModel", "SpecModel"}]
    assert len(models) >= 10
    for model in models:
        # The pods of a topology are described on the generated page alone.
        page = REFERENCE if model.__module__.endswith((".kubernetes", ".affinity")) else TOPOLOGY
        for name, field in model.model_fields.items():
            written = field.alias or name
            assert re.search(rf"[`.]{written}(\[\])?`", page), (
                f"{written} of {model.__name__} is not documented"
            )


@pytest.mark.parametrize("cls", [KafkaSource, KafkaSink], ids=lambda c: c.__name__)
def test_the_kafka_page_names_every_parameter_with_its_default(cls: type) -> None:
    section = KAFKA.partition(f"\n## {cls.__name__.removeprefix('Kafka')}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    defaults = {name: row[1] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    for name, parameter in inspect.signature(cls).parameters.items():
        assert f"`{name}`" in section, f"{name} of {cls.__name__} is not documented"
        default = parameter.default
        if isinstance(default, str | int) and not isinstance(default, bool):
            assert defaults[name] == (f"`{default}`" if isinstance(default, str) else str(default)), name
