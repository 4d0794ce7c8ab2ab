"""The executor's command line out of what Spark puts into its pod, and the driver's own options."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.agent.executor import BACKEND, command_line
from reprise.controller.driver.__main__ import _pair, _submit_arguments
from reprise.controller.errors import StartError

SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "t-abc-exec-3",
    "SPARK_EXECUTOR_MEMORY": "512m",
}


def test_spark_s_options_come_after_the_image_s_and_in_their_order(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n}" for n in (10, 2, 0)}
    environment = SPARK | options | {"REPRISE_JAVA_OPTIONS": "-Da=b '-Dc=d e'", "SPARK_JAVA_OPT_X": "-Dno"}
    line = command_line(environment, Path("/java"), tmp_path)
    assert line[0] == "/java/bin/java"
    flags = [word for word in line if word.startswith("-D")]
    assert flags == ["-Da=b", "-Dc=d e", "-Dn=0", "-Dn=2", "-Dn=10"]
    assert line[line.index(BACKEND) + 1 :] == [
        "--driver-url", SPARK["SPARK_DRIVER_URL"], "--executor-id", "3", "--cores", "1", "--app-id", "spark-1",
        "--hostname", "10.0.0.2", "--resourceProfileId", "0", "--podName", "t-abc-exec-3",
    ]  # fmt: skip
    assert "-Xmx512m" in line


@pytest.mark.parametrize("missing", sorted(SPARK))
def test_a_pod_that_spark_has_not_asked_for_is_told_so(missing: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in SPARK.items() if key != missing}
    with pytest.raises(StartError, match=missing):
        command_line(environment, Path("/java"), tmp_path)


def test_the_driver_s_properties_and_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pair("a.b=c=d") == ("a.b", "c=d")
    for bad in ("a.b", "=c", ""):
        with pytest.raises(ValueError, match="KEY=VALUE"):
            _pair(bad)
    monkeypatch.delenv("REPRISE_JAVA_OPTIONS", raising=False)
    assert _submit_arguments("768m") == "--driver-memory 768m pyspark-shell"
    monkeypatch.setenv("REPRISE_JAVA_OPTIONS", "-Da=b -Dc")
    assert _submit_arguments("1g") == "--driver-memory 1g --driver-java-options '-Da=b -Dc' pyspark-shell"
