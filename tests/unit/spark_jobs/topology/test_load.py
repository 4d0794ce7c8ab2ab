"""Every mistake in a resource is one error that names the field, says why and gives the line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import load_text, load_topology, make_operator
from tests.support.examples import examples

GOOD = """\
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata:
  name: test
spec:
  batch: {interval: 500ms}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {rate: 100}
  operators:
    - name: parser
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags]}
      inputs: [{from: tweets, forward: true}]
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 3
      with: {keys: [hashtags]}
      inputs: [{from: parser, by: [hashtags]}]
      output: {priority: 3, priorities: {"1": 7}}
  checkpoint: {interval: 10s}
"""

COUNT = "spec.operators[count]"
MISTAKES = [
    # (text, replaced by, field, part of the reason, line)
    ("kind: StreamTopology", "kind: Topology", "kind", "StreamTopology", 2),
    ("v1alpha1", "v1", "apiVersion", "v1alpha1", 1),
    ("kind: StreamTopology\n", "", "kind", "is required", None),
    ("name: test", "nam: test", "metadata.nam", "did you mean 'name'?", 4),
    ("name: test", "name: Test_1", "metadata.name", "not a DNS label", 4),
    ("batch:", "batches:", "spec.batches", "did you mean 'batch'?", 6),
    ("500ms", "5", "spec.batch.interval", "is not a duration", 6),
    ("500ms", "0ms", "spec.batch.interval", "must be more than 0", 6),
    ("parallelism: 3", "paralelism: 3", f"{COUNT}.paralelism", "did you mean 'parallelism'?", 20),
    ("parallelism: 3", "parallelism: 0", f"{COUNT}.parallelism", "greater than or equal to 1, found 0", 20),
    ("parallelism: 3", "parallelism: '3'", f"{COUNT}.parallelism", "valid integer", 20),
    ("name: count", "name: by_tag", "spec.operators[1].name", "not a DNS label", 18),
    ("name: count", "name: parser", "spec.operators[1].name", "is the name of spec.operators[0] already", 18),
    (
        "name: count",
        "name: tweets",
        "spec.operators[1].name",
        "is the name of spec.sources[0] already",
        18,
    ),
    ("priority: 3", "priority: 11", f"{COUNT}.output.priority", "less than or equal to 10, found 11", 23),
    ("priority: 3", "priority: 0", f"{COUNT}.output.priority", "greater than or equal to 1, found 0", 23),
    ('"1": 7', '"1": 70', f"{COUNT}.output.priorities.1", "less than or equal to 10", 23),
    ('"1": 7', '"3": 7', f"{COUNT}.output.priorities.3", "there is no partition 3", 23),
    ('"1": 7', '"x": 7', f"{COUNT}.output.priorities.x", "pattern", 23),
    ("priority: 3", "format: csv, priority: 3", f"{COUNT}.output.format", "'jsonl' or 'parquet'", 23),
    ("from: parser", "from: parsr", f"{COUNT}.inputs[0].from", "did you mean 'parser'?", 22),
    ("inputs: [{from: parser, by: [hashtags]}]", "inputs: []", f"{COUNT}.inputs", "at least 1 item", 22),
    ("      inputs: [{from: parser, by: [hashtags]}]\n", "", f"{COUNT}.inputs", "is required", 18),
    (", by: [hashtags]", "", f"{COUNT}.inputs[0]", "say how rows reach them", 22),
    (", by: [hashtags]", ", by: [hashtags], broadcast: true", f"{COUNT}.inputs[0]", "only one of", 22),
    (", by: [hashtags]", ", forward: true", f"{COUNT}.inputs[0].forward", "needs equal parallelism", 22),
    (", by: [hashtags]", ", by: hashtags", f"{COUNT}.inputs[0].by", "expected a list, found str", 22),
    (
        "[{from: parser, by: [hashtags]}]",
        "[{from: parser, by: [a]}, {from: parser, by: [b]}]",
        f"{COUNT}.inputs",
        "2 times",
        22,
    ),
    (
        "from: tweets, forward",
        "from: count, broadcast",
        "spec.operators[count].inputs[0]",
        "closes the cycle",
        22,
    ),
    ("true}]", "true, feedback: true}]", "spec.operators[parser].inputs", "are all feedback", 17),
    (
        '\n      output: {priority: 3, priorities: {"1": 7}}',
        "",
        "spec.operators",
        "no operator has an `output`",
        12,
    ),
    ("operators:KeyedCount", "operators:KeyedCont", f"{COUNT}.class", "did you mean 'KeyedCount'?", 19),
    (
        "reprise.spark_jobs.operators:K",
        "reprise.spark_jobs.operator:K",
        f"{COUNT}.class",
        "No module named 'reprise.spark_jobs.operator'",
        19,
    ),
    ("operators:KeyedCount", "operators.KeyedCount", f"{COUNT}.class", "write package.module:Class", 19),
    (
        "reprise.spark_jobs.operators:KeyedCount",
        "reprise.spark_jobs.sources:FileSource",
        f"{COUNT}.class",
        "contract:Operator",
        19,
    ),
    (
        "reprise.spark_jobs.operators:KeyedCount",
        "reprise.spark_jobs.contract:Operator",
        f"{COUNT}.class",
        "does not define step",
        19,
    ),
    ("{keys: [hashtags]}", "{key: [hashtags]}", f"{COUNT}.with.key", "did you mean 'keys'?", 21),
    ("{keys: [hashtags]}", "{}", f"{COUNT}.with.keys", "is required by KeyedCount", 21),
    ("{keys: [hashtags]}", "{keys: 5}", f"{COUNT}.with.keys", "expected column names as text", 21),
    ("{rate: 100}", "{rate: fast}", "spec.sources[tweets].with.rate", "expected an integer", 11),
    ("interval: 10s", "interval: 10s, everyBatches: 3", "spec.checkpoint", "only one of", 24),
    ("  checkpoint:", "  paused: false\n  paused: true\n  checkpoint:", "spec.paused", "is given twice", 25),
    (
        "  checkpoint:",
        "  recovery: {cpuCap: 120}\n  checkpoint:",
        "spec.recovery.cpuCap",
        "less than or equal to 100",
        24,
    ),
    ("  checkpoint:", "  nodes: {cpu: lots}\n  checkpoint:", "spec.nodes.cpu", "is not a quantity", 24),
    (
        "{keys: [hashtags]}",
        "{keys: [n]}",
        "spec.operators[1].with.keys[0]",
        'write "n" in quotes: kubectl reads',
        21,
    ),
    (
        "{keys: [hashtags]}",
        "{y: [hashtags]}",
        "spec.operators[1].with.y",
        'write "y" in quotes: kubectl reads',
        21,
    ),
    ("  sources:", "  sources: [", "(document)", "not YAML", 8),
    ("spec:", "spec: 3 #", "(document)", "not YAML", 6),
]


def test_a_word_in_quotes_is_text_to_all_who_read_it() -> None:
    """And goes on to the next check, which knows no such column."""
    text = GOOD.replace("{keys: [hashtags]}", '{keys: ["n"]}')
    assert text != GOOD
    with pytest.raises(SpecError, match="there is no column 'n'"):
        load_text(text)


def test_the_good_resource_is_good() -> None:
    assert load_text(GOOD).operator("count").output.priority_of(1) == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(("old", "new", "field", "reason", "line"), MISTAKES)
def test_a_mistake_is_named(old: str, new: str, field: str, reason: str, line: int | None) -> None:
    assert old in GOOD
    with pytest.raises(SpecError) as caught:
        load_text(GOOD.replace(old, new), "t.yaml")
    assert caught.value.field == field
    assert reason in caught.value.reason
    if line is not None:
        assert f"t.yaml, line {line}" in caught.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "just text",
        "a: 1\n---\nb: 2",
        "\tx: 1",
        "{[1]: 2}",
        "? {a: 1}\n: 2",
        "a: .nan",
        "a: &a [b, b]\nb: &b [*a, *a]",
        "[\n" * 3000,
        "a: &x [*x]",
        "!!python/object:os.system {}",
        "\x00",
    ],
)
def test_files_that_are_no_resource_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        load_text(text)


@examples(60)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 9), st.text(alphabet="{}[]:-,'\" \nax1", max_size=4))
def test_no_damage_to_a_file_gives_anything_but_a_spec_error(start: int, length: int, insert: str) -> None:
    try:
        load_text(GOOD[:start] + insert + GOOD[start + length :])
    except SpecError as error:
        assert error.field and error.reason


def test_a_module_beside_the_file_is_found_and_its_errors_are_named(tmp_path: Path) -> None:
    (tmp_path / "my_operators_beside.py").write_text(
        "from reprise.spark_jobs.contract import Operator\n"
        "class Mine(Operator):\n"
        "    def __init__(self, limit):\n"
        "        if limit < 0: raise ValueError('limit is negative')\n"
        "    def step(self, state, inbox): return state, inbox.table()\n"
    )
    text = GOOD.replace("reprise.spark_jobs.operators:KeyedCount", "my_operators_beside:Mine")
    path = tmp_path / "t.yaml"
    path.write_text(text.replace("{keys: [hashtags]}", "{limit: 1}"))
    resource = load_topology(path)
    assert isinstance(make_operator(resource.operator("count")), Operator)
    path.write_text(text.replace("{keys: [hashtags]}", "{limit: -1}"))
    with pytest.raises(
        SpecError, match=r"spec.operators\[count\].with: .*limit is negative \(t.yaml, line 21\)"
    ):
        load_topology(path)
    (tmp_path / "broken_beside.py").write_text("1 / 0\n")
    path.write_text(text.replace("my_operators_beside:", "broken_beside:"))
    with pytest.raises(SpecError, match="ZeroDivisionError"):
        load_topology(path)


def test_what_is_legal_but_odd_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    odd = GOOD.replace(
        "  checkpoint:",
        "    - {name: idle, class: 'reprise.spark_jobs.operators:Sink', inputs: [{from: parser}]}\n  checkpoint:",
    )
    with caplog.at_level(logging.WARNING):
        load_text(odd)
    assert ["spec.operators[idle]" in m and "no query needs it" in m for m in caplog.messages] == [True]


def test_the_resource_can_overrule_what_a_class_says_of_itself() -> None:
    text = GOOD.replace(
        "      with: {keys: [hashtags]}", "      with: {keys: [hashtags]}\n      deterministic: false"
    )
    assert make_operator(load_text(text).operator("count")).deterministic is False
    assert make_operator(load_text(GOOD).operator("count")).deterministic is True


def all_mistakes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_text(text, "t.yaml")
    return [str(mistake) for mistake in caught.value.all]


def edited(*pairs: tuple[str, str]) -> str:
    text = GOOD
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("pairs", "fields"),
    [
        (  # shape: fields that are not known hide nothing, and are said once
            [("parallelism: 3", "paralelism: 3, colour: red"), ("priority: 3", "priority: 30"), ("name: test", "nam: test")],
            ["metadata.nam", f"{COUNT}.paralelism", f"{COUNT}.colour", f"{COUNT}.output.priority"],
        ),
        (  # the graph and the classes
            [("from: parser", "from: parsr"), ("{rate: 100}", "{rat: 100}"), ("operators:FlatMap", "operators:FlatMop")],
            ["spec.sources[tweets].with.rat", "spec.operators[parser].class", f"{COUNT}.inputs[0].from"],
        ),
        (  # names and classes beside what is wrong with the shape, as the page of the command line shows it
            [("parallelism: 3", "paralelism: 3"), ("from: parser", "from: parsr"), ("{rate: 100}", "{rate: fast}")],
            ["spec.sources[tweets].with.rate", f"{COUNT}.paralelism", f"{COUNT}.inputs[0].from"],
        ),
        (  # the same with a value that is wrong, and a sink
            [("500ms", "5"), ("operators:FlatMap", "operators:FlatMop"), ("{priority: 3,", "{sink: {class: 'a:B'},")],
            ["spec.batch.interval", "spec.operators[parser].class", f"{COUNT}.output.sink.class"],
        ),
        (  # classes and columns
            [("explode: [hashtags]", "explode: [tags]"), ("{keys: [hashtags]}", "{keys: 5}")],
            ["spec.operators[parser].with.explode", f"{COUNT}.with.keys"],
        ),
        (  # several of one rule
            [("from: tweets, forward: true", "from: a"), ("from: parser", "from: b")],
            ["spec.operators[parser].inputs[0].from", f"{COUNT}.inputs[0].from"],
        ),
        (
            [("{keys: [hashtags]}", "{key: [hashtags], nam: x}")],
            [f"{COUNT}.with.key", f"{COUNT}.with.nam"],
        ),
        ([("  checkpoint:", "  paused: true\n  paused: true\n  batch: {}\n  checkpoint:")], ["spec.paused", "spec.batch"]),
    ],
    ids=["shape", "graph and classes", "names beside shape", "classes beside shape", "classes and columns", "one rule",
         "parameters", "keys given twice"],
)  # fmt: skip
def test_every_mistake_is_told_at_once(pairs: list[tuple[str, str]], fields: list[str]) -> None:
    pairs = [(old, new.replace(", colour", "\n      colour")) for old, new in pairs]
    found = all_mistakes(edited(*pairs))
    assert [mistake.partition(": ")[0] for mistake in found] == fields
    assert all("(t.yaml, line " in mistake for mistake in found)


@pytest.mark.parametrize(
    ("pairs", "fields"),
    [
        ([("name: parser", "nam: parser")], ["spec.operators[0].nam"]),  # it may be the one that is read
        (
            [("name: parser", "name: count"), ("500ms", "5")],
            ["spec.batch.interval"],
        ),  # which of the two is meant
        ([("{keys: [hashtags]}", "5"), ("500ms", "5")], ["spec.batch.interval", f"{COUNT}.with"]),
        ([("with: {keys: [hashtags]}", "wiht: {keys: [hashtags]}")], [f"{COUNT}.wiht"]),
        ([("class: reprise.spark_jobs.operators:KeyedCount", "class: KeyedCount")], [f"{COUNT}.class"]),
        ([('"1": 7', '"5": 7'), ("parallelism: 3", "parallelism: many")], [f"{COUNT}.parallelism"]),
    ],
    ids=["a name", "two of one name", "parameters", "their name", "a class", "partitions"],
)
def test_what_only_follows_from_a_wrong_shape_is_not_told(
    pairs: list[tuple[str, str]], fields: list[str]
) -> None:
    assert [mistake.partition(": ")[0] for mistake in all_mistakes(edited(*pairs))] == fields


def test_mistakes_are_in_the_order_of_the_file_and_those_of_options_last() -> None:
    text = edited(("priority: 3", "priority: 11"), ("500ms", "5"))
    with pytest.raises(SpecError) as caught:
        load_text(text, "t.yaml")
    assert [error.field for error in caught.value.all] == ["spec.batch.interval", f"{COUNT}.output.priority"]
    assert str(caught.value).endswith("(and 1 more)")
    with pytest.raises(SpecError) as caught:
        load_text(edited(("{rate: 100}", "{rate: fast}")), "t.yaml", {"spark.executorMemory": "1Mi"})
    assert [error.field for error in caught.value.all] == [
        "spec.sources[tweets].with.rate",
        "spec.spark.executorMemory",
    ]


def test_two_cycles_are_two_mistakes() -> None:
    text = edited(
        ("from: tweets, forward: true", "from: tweets, forward: true}, {from: count, broadcast: true")
    )
    more = """    - name: again
      class: reprise.spark_jobs.operators:Union
      inputs: [{from: again}, {from: tweets}]
"""
    found = all_mistakes(text.replace("  checkpoint:", more + "  checkpoint:"))
    assert sum("closes the cycle" in mistake for mistake in found) == 2


MANY = st.lists(
    st.sampled_from([m for m in MISTAKES if "replaced" not in m[0]]), min_size=2, max_size=4, unique=True
)


@given(MANY)
def test_more_mistakes_never_hide_that_there_is_one(
    chosen: list[tuple[str, str, str, str, int | None]],
) -> None:
    """Whatever is wrong together: it is refused, nothing unforeseen is raised, and none is said twice."""
    text = GOOD
    for old, new, *_ in chosen:
        assume(old in text)  # else one mistake takes away what the other is made of, and may mend it
        text = text.replace(old, new, 1)
    assume(all(new == "" or new in text for _, new, *_ in chosen))
    assume(len({old for old, *_ in chosen}) == len(chosen))
    found = all_mistakes(text)
    assert len(found) == len(set(found)) >= 1


def test_a_path_with_a_colon_is_meant_from_the_files_folder(tmp_path: Path) -> None:
    rows = 'class: reprise.spark_jobs.sources:FileSource\n      with: {paths: ["ru:n.csv"], rows: 1}\n'
    text = GOOD.replace("class: reprise.spark_jobs.sources:HashtagSource\n", rows)
    text = text.replace("      parallelism: 2\n      with: {rate: 100}\n", "").replace(
        "explode: [hashtags]", "select: ['*']"
    )
    text = (
        text.replace("FlatMap", "Map")
        .replace("      parallelism: 2\n", "")
        .replace("inputs: [{from: tweets, forward: true}]", "inputs: [{from: tweets}]")
    )
    (tmp_path / "ru:n.csv").write_text("hashtags\n1\n")
    (tmp_path / "t.yaml").write_text(text)
    assert load_topology(tmp_path / "t.yaml").sources[0].parameters["paths"] == [str(tmp_path / "ru:n.csv")]
