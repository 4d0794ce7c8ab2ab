"""The secret of an embedded Spark cluster: in a private file and in environments, never in a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.agent.spark_secret import AUTHENTICATION, VARIABLE, SparkSecret


def test_the_file_for_drivers_is_private_and_turns_authentication_on(tmp_path: Path) -> None:
    secret = SparkSecret(tmp_path / "driver.conf")
    secret.write()
    assert secret.properties.stat().st_mode & 0o777 == 0o600
    found = dict(line.split(" ", 1) for line in secret.properties.read_text().splitlines())
    assert found == AUTHENTICATION | {"spark.authenticate.secret": secret.value}
    with pytest.raises(FileExistsError):  # somebody else's file is not filled with a secret
        secret.write()


def test_no_command_line_has_the_secret_and_every_cluster_has_its_own(tmp_path: Path) -> None:
    one, other = SparkSecret(tmp_path / "a"), SparkSecret(tmp_path / "b")
    assert one.value != other.value and len(one.value) == 64
    for word in (*one.daemon_options(), *one.submit_arguments("--driver-memory", "1g"), repr(one)):
        assert one.value not in word
    assert one.daemon_environment() == {VARIABLE: one.value}
    assert one.submit_arguments("--x")[-2:] == ["--x", "pyspark-shell"]
