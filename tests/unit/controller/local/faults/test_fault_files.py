"""Fault files: what they mean, and one clear error for everything they cannot mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.local.errors import FaultFileError
from reprise.controller.local.faults.faults import Fault, Trigger, load_faults, most_killed, parse_faults
from reprise.spark_jobs.topology import expand, load_topology

EXAMPLES = Path(__file__).parents[5] / "examples"

GOOD = [
    ({"at": "20s", "kill": ["n3", "n4"]}, Fault(Trigger("at", 20.0), "kill", ("n3", "n4"), label="0")),
    ({"at": 20, "kill": "n3"}, Fault(Trigger("at", 20.0), "kill", ("n3",), label="0")),
    ({"batch": 40, "add": 2}, Fault(Trigger("batch", 40), "add", count=2, label="0")),
    (
        {"batch": 40, "freeze": ["n1"], "for": "5s"},
        Fault(Trigger("batch", 40), "freeze", ("n1",), for_s=5.0, label="0"),
    ),
    (
        {"at": "5s", "notice": ["n1"]},
        Fault(Trigger("at", 5.0), "notice", ("n1",), for_s=10.0, label="0"),
    ),
    (
        {"at": "5s", "notice": ["n1", "@o12"], "for": "2m"},
        Fault(Trigger("at", 5.0), "notice", ("n1", "@o12"), for_s=120.0, label="0"),
    ),
    ({"at": 0, "thaw": ["n1"], "name": "w"}, Fault(Trigger("at"), "thaw", ("n1",), name="w", label="0")),
    (
        {"on": "plan", "count": 2, "crash": "coordinator"},
        Fault(Trigger("on", 2, "plan"), "crash", target="coordinator", label="0"),
    ),
    (
        {True: "incident", "delay": "1s", "crash": "zookeeper"},
        Fault(Trigger("on", 1, "incident", 1.0), "crash", target="zookeeper", for_s=3.0, label="0"),
    ),
    ({"at": "1s", "kill": ["@o12.0"]}, Fault(Trigger("at", 1.0), "kill", ("@o12.0",), label="0")),
]


@pytest.mark.parametrize(("item", "fault"), GOOD)
def test_an_entry_means(item: dict[Any, Any], fault: Fault) -> None:
    assert parse_faults([item], "F.yaml", 4) == (fault,)


BAD = [
    ({"kill": ["n1"]}, "[1]", "exactly one moment"),
    ({"at": "1s", "batch": 2, "kill": ["n1"]}, "[1]", "found at and batch"),
    ({"at": "1s"}, "[1]", "exactly one action"),
    ({"at": "1s", "kill": ["n1"], "add": 1}, "[1]", "found kill and add"),
    ({"at": "soon", "kill": ["n1"]}, "[1].at", "not a duration"),
    ({"at": True, "kill": ["n1"]}, "[1].at", "duration"),
    ({"at": -1, "kill": ["n1"]}, "[1].at", "duration"),
    ({"at": "1s", "kill": []}, "[1].kill", "list of node names"),
    ({"at": "1s", "kill": [3]}, "[1].kill", "list of node names"),
    ({"at": "1s", "kill": ["n1", "n1"]}, "[1].kill", "twice"),
    ({"at": "1s", "add": 0}, "[1].add", "at least 1"),
    ({"at": "1s", "add": "2"}, "[1].add", "whole number"),
    ({"at": "1s", "crash": "spark"}, "[1].crash", "coordinator, driver, zookeeper"),
    ({"at": "1s", "crash": "driver", "for": "1s"}, "[1].for", "restarted at once"),
    ({"at": "1s", "kill": ["n1"], "for": "1s"}, "[1].for", "unknown field"),
    ({"at": "1s", "kill": ["n1"], "count": 2}, "[1].count", "unknown field"),
    ({"at": "1s", "kil": ["n1"], "add": 1}, "[1].kil", "unknown field"),
    ({"after": 1, "add": 1}, "[1].after", "before this one"),
    ({"after": "burst", "add": 1}, "[1].after", "there are 0, first"),
    ({"on": "lunch", "add": 1}, "[1].on", "incident, plan"),
    ({"at": "1s", "add": 1, "name": "first"}, "[1].name", "no fault before"),
    ({"at": "1s", "add": 1, "name": "7"}, "[1].name", "no fault before"),
    ({"at": "1s", "trace": "nowhere.csv"}, "[1].trace", "cannot be read"),
    ({"at": "1s", "trace": "x", "speedup": 0}, "[1].speedup", "more than 0"),
    ("kill n1", "[1]", "must be a mapping"),
]


@pytest.mark.parametrize(("item", "field", "reason"), BAD)
def test_a_wrong_entry_is_one_error_with_index_and_field(item: Any, field: str, reason: str) -> None:
    with pytest.raises(FaultFileError) as caught:
        parse_faults([{"at": "1s", "add": 1, "name": "first"}, item], "F.yaml", 4)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "fields"),
    [
        (
            {"at": "soon", "kill": [], "for": "1s", "name": "7", "dely": "1s"},
            ["[0].dely", "[0].for", "[0].name", "[0].at", "[0].kill"],
        ),
        ({"at": "soon", "kil": ["n1"], "nmae": "x"}, ["[0].kil", "[0].nmae", "[0].at"]),
        ({"name": "7"}, ["[0]", "[0]", "[0].name"]),
        ({"on": "lunch", "crash": "spark", "speedup": 2}, ["[0].speedup", "[0].on", "[0].crash"]),
    ],
)
def test_all_mistakes_of_an_entry_are_told_and_none_that_only_follows(item: Any, fields: list[str]) -> None:
    with pytest.raises(FaultFileError) as caught:
        parse_faults([item], "F.yaml", 4)
    assert [mistake.field for mistake in caught.value.all] == fields


@pytest.mark.parametrize(
    ("text", "reason"), [("a: 1", "must be a list"), ("[", "is not YAML"), ("\x00", "is not YAML")]
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "F.yaml"
    path.write_text(text)
    with pytest.raises(FaultFileError, match=reason) as caught:
        load_faults(path, 4)
    assert caught.value.file == str(path)


def test_an_empty_file_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "F.yaml").write_text("# nothing\n")
    assert load_faults(tmp_path / "F.yaml", 4) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["at", "batch", "after", "on", "kill", "add", "for", "crash", "name"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_the_parser_is_total(value: Any) -> None:
    try:
        found = parse_faults([value], "F.yaml", 4)
    except FaultFileError as error:
        assert str(error).startswith("F.yaml: ")
    else:
        assert all(fault.describe() for fault in found)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "faults").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_loads(path: Path) -> None:
    assert load_faults(path, 10)


def test_the_demo_asks_for_as_many_nodes_as_it_kills() -> None:
    faults = load_faults(EXAMPLES / "faults" / "demo.yaml", 10)
    adds = [fault for fault in faults if fault.action == "add"]
    assert most_killed(faults) == sum(fault.count for fault in adds) == 8
    assert [fault.trigger.delay_s for fault in adds] == sorted(fault.trigger.delay_s for fault in adds)
    assert {fault.trigger.of for fault in adds} == {"0"} or {fault.trigger.of for fault in adds} == {"burst"}


TWO = """# faults
- {at: 20s, kill: [n3], name: burst}
- after: burst
  %s
- {at: 30s, add: 1}
"""
PAIR = expand(load_topology(EXAMPLES / "minimal.yaml"))


@pytest.mark.parametrize(
    ("entry", "field", "reason"),
    [
        ("kil: [n2]", "[1].kil", "unknown field; did you mean 'kill'? (line 4)"),
        (
            "kill: [n5]",
            "[1].kill",
            "there is no node 'n5': the run starts with n1 to n3, and up to n4 with those",
        ),
        ("kill: [node2]", "[1].kill", "there is no node 'node2'"),
        (
            "freeze: ['@parsr']",
            "[1].freeze",
            "there is no partition or operator 'parsr'; did you mean 'parser'? (line 4)",
        ),
        ("kill: ['@count.2']", "[1].kill", "there is no partition or operator 'count.2'"),
        ("kill: [n2]\n  for: 1s", "[1].for", "(line 5)"),
    ],
)
def test_what_a_file_cannot_mean_is_refused_before_the_start_with_its_line(
    tmp_path: Path, entry: str, field: str, reason: str
) -> None:
    path = tmp_path / "F.yaml"
    path.write_text(TWO % entry)
    with pytest.raises(FaultFileError) as raised:
        load_faults(path, 3, PAIR)
    assert raised.value.field == field
    assert reason in raised.value.reason


@pytest.mark.parametrize("entry", ["kill: [n4]", "kill: ['@count.1', '@parser']", "freeze: [n1]"])
def test_nodes_that_are_added_and_partitions_that_are_there_may_be_named(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "F.yaml"
    path.write_text(TWO % entry)
    assert len(load_faults(path, 3, PAIR)) == 3
    assert len(load_faults(path, 1, standby=2)) == 3


def test_a_moment_is_said_in_words() -> None:
    assert Trigger("on", 1, "checkpoint", 15.0).describe() == "15 s after checkpoint 1 of the run"
    assert Trigger("on", 2, "plan").describe() == "at plan 2 of the run"
    assert Trigger("batch", 40).describe() == "at batch 40"
    assert Trigger("at", 20.0).describe() == "20 s into the stream"
    assert Trigger("after", of="burst", delay_s=2.5).describe() == "2.5 s after fault burst"


def test_every_mistake_of_a_file_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "F.yaml"
    path.write_text(
        "- {at: 5s, kil: [n2], name: first}\n"
        "- {after: first, kill: [n3]}\n"  # is right: the fault before it has a name, whatever else is wrong with it
        "- {at: soon, kill: [n1]}\n"
        "- {at: 1s, trace: none.csv}\n"
        "- 7\n"
        "- {at: 1s, crash: sun}\n"
    )
    with pytest.raises(FaultFileError) as caught:
        load_faults(path, 3)
    found = caught.value.all
    assert [(e.field, e.reason.rpartition("line ")[2]) for e in found] == [
        ("[0].kil", "1)"),
        ("[2].at", "3)"),
        ("[3].trace", "4)"),
        ("[4]", "5)"),
        ("[5].crash", "6)"),
    ]
    assert {e.file for e in found} == {str(path)}
    assert f"{tmp_path / 'none.csv'}: cannot be read: No such file or directory (line 4)" in found[2].reason
    assert str(caught.value).endswith("(and 4 more)")


def test_nodes_that_are_not_there_are_told_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "F.yaml"
    path.write_text("- {at: 5s, kill: [n2, n9]}\n- {at: 6s, kill: [n8]}\n")
    with pytest.raises(FaultFileError) as caught:
        load_faults(path, 3)
    assert [e.field for e in caught.value.all] == ["[0].kill", "[1].kill"]


def test_nodes_and_partitions_are_looked_at_beside_other_mistakes(tmp_path: Path) -> None:
    """Whoever mends a file by what is told needs no second call: what an entry does is known where its moment is not."""
    path = tmp_path / "F.yaml"
    path.write_text(
        "- {at: soon, kill: [n9]}\n"
        "- {at: 5s, add: 2, colour: red}\n"  # adds two, whatever its colour
        "- {at: 6s, kill: [n5, n6], dely: 1s}\n"
        "- {freeze: ['@parsr']}\n"
    )
    with pytest.raises(FaultFileError) as caught:
        load_faults(path, 3, PAIR)
    found = [(e.field, e.reason.rpartition(" (line ")[0]) for e in caught.value.all]
    assert [field for field, _ in found] == [
        "[0].at",
        "[0].kill",
        "[1].colour",
        "[2].dely",
        "[2].kill",
        "[3]",
        "[3].freeze",
    ]
    assert found[4][1].startswith("there is no node 'n6': the run starts with n1 to n3, and up to n5 with")


def test_nodes_are_not_missed_where_a_fault_that_may_add_them_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "F.yaml"
    path.write_text("- {at: 5s, ad: 6}\n- {at: 60s, kill: [n8]}\n")
    with pytest.raises(FaultFileError) as caught:
        load_faults(path, 3)
    assert [e.field for e in caught.value.all] == ["[0].ad"]
