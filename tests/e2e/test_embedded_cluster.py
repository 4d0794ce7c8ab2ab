"""The embedded cluster with real Spark, ZooKeeper, kills and freezes.

One cluster serves the tests of this module in order of definition; each leaves it with its nodes alive. The driver is
a process of its own, as a SparkContext takes over the Python process it is in.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import processes
from reprise.controller.agent.java import FORCE_BUNDLED
from reprise.controller.agent.processes import Session
from reprise.controller.errors import NodeExistsError, UnknownNodeError
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import marked
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import NoAuthError
from reprise.spark_jobs.node.spare import HANDSHAKE, LOG, STARTING
from tests.support.told_cluster import PATIENT_S, ToldCluster
from tools.testbed.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.wide]
ROOT = "/reprise/default/first"

# argv: master, executors wanted, executor options, driver options. Prints the hosts that ran tasks.
_DRIVER = """
import os, sys, time
from pyspark import SparkConf, SparkContext
from reprise.controller.agent.announcing import announce
from reprise.spark_jobs.engine.chain import executors
master, wanted, executor_options, driver_options = sys.argv[1:]
conf = (SparkConf().setMaster(master).setAppName("probe").set("spark.executor.memory", "512m")
        .set("spark.executor.cores", "5").set("spark.ui.enabled", "false")
        .set("spark.executor.extraJavaOptions", executor_options).set("spark.driver.extraJavaOptions", driver_options)
        .set("spark.locality.wait", "0s"))
context = SparkContext(conf=conf)
withdraw = announce(context)
while len(executors(context, os.environ["SPARK_LOCAL_IP"])) < int(wanted):
    time.sleep(0.1)
def where(_):
    time.sleep(0.5)
    return os.environ["SPARK_LOCAL_IP"]
hosts = set(context.parallelize(range(4 * int(wanted)), 4 * int(wanted)).map(where).collect())
print("HOSTS", *sorted(hosts), flush=True)
if "REPRISE_TEST_STAY" in os.environ:
    sys.stdin.read()
withdraw()
context.stop()
"""


# argv: master, host of the driver, executor options, driver options. Makes the first node ready, as the driver's loop does.
_READY = """
import os, sys, time
from pyspark import SparkContext
from reprise.controller.agent.announcing import announce
from reprise.spark_jobs.engine.chain import configuration, executors, warm
master, here, executor_options, driver_options = sys.argv[1:]
context = SparkContext(conf=configuration(master, "ready", {
    "spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    "spark.executor.extraJavaOptions": executor_options, "spark.driver.extraJavaOptions": driver_options}))
withdraw = announce(context)
while not (found := executors(context, here)):
    time.sleep(0.1)
host = next(iter(found))
began, met = warm(context, host)
print("READY", host, met - began, flush=True)
sys.stdin.read()
withdraw()
context.stop()
"""


def incarnations(cluster: EmbeddedCluster, root: str = ROOT) -> dict[str, int]:
    return {name: record.incarnation for name, record in cluster.arrived(root).items()}


def session_of(cluster: EmbeddedCluster, node: str) -> Session:
    return Session.of(cluster.arrived(ROOT)[node].pid)


def start_driver(cluster: EmbeddedCluster, executors: int, **environment: str) -> "subprocess.Popen[str]":
    options = cluster.executor_java_options(), cluster.driver_java_options()
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, cluster.master_url, str(executors), *options],
        env=os.environ | dict(cluster.spark_env()) | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def hosts_used(driver: "subprocess.Popen[str]") -> set[str]:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("HOSTS"):
            return set(line.split()[1:])
    raise AssertionError(f"the driver ended with {driver.wait()}")


def patient(nodes: int, session_s: float = PATIENT_S, **more: Any) -> ClusterConfig:
    """No starved agent is lost, and no start is given up, but one that hangs."""
    timeout_ms = round(1000 * session_s)
    return ClusterConfig(nodes=nodes, session_timeout_ms=timeout_ms, start_timeout_s=300.0, **more)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with ToldCluster(patient(3)) as started:
        started.serve(ROOT)
        until(lambda: len(started.arrived(ROOT)) == 3, "three nodes under the served root")
        yield started


def test_a_job_runs_on_every_node_and_a_kill_leaves_no_process_of_a_node(cluster: EmbeddedCluster) -> None:
    driver = start_driver(cluster, 3, REPRISE_TEST_STAY="1")
    try:
        assert hosts_used(driver) == {cluster.host_of(node) for node in cluster.nodes}
        doomed = cluster.nodes[-1]
        session = session_of(cluster, doomed)
        running = processes.members([session])
        assert len(running) >= 5  # agent, host, executor, Python daemon, Python worker
        assert len({os.getpgid(p.pid) for p in running}) > 1, "pyspark's daemon has a group of its own"
        EmbeddedCluster.kill(cluster, [doomed])
        assert processes.members([session]) == []
        assert doomed not in cluster.nodes
        until(lambda: doomed not in cluster.arrived(ROOT), "its znode goes")
        with pytest.raises(UnknownNodeError, match=doomed):
            cluster.host_of(doomed)
    finally:
        driver.communicate("")
    assert driver.returncode == 0, "the application outlives a node"


def test_the_first_task_takes_the_host_that_the_agent_has_started(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """With all that Spark adds to its variables, and with a folder of the user's, which Spark names twice."""
    nodes = cluster.scratch / "nodes"
    until(lambda: all((nodes / n / "spare" / HANDSHAKE).exists() for n in cluster.nodes), "hosts wait")
    waiting = {cluster.host_of(n): (nodes / n / "spare" / STARTING).read_text() for n in cluster.nodes}
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    options = cluster.executor_java_options(), cluster.driver_java_options()
    driver = subprocess.Popen(
        [sys.executable, "-c", _READY, cluster.master_url, cluster.zookeeper.host, *options],
        env=os.environ | dict(cluster.spark_env()) | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert driver.stdout is not None
        host = next(line.split()[1] for line in driver.stdout if line.startswith("READY"))
        node = next(n for n in cluster.nodes if cluster.host_of(n) == host)
        (home,) = [found.parent for found in (nodes / node / "work").glob("*/*/partition-host.json")]
        assert (home / LOG).read_text() == ""
        assert json.loads((home / "partition-host.json").read_text())["pid"] == int(waiting[host])
    finally:
        driver.communicate("")


def test_an_application_without_the_secret_is_refused(cluster: EmbeddedCluster) -> None:
    """By the master, to which RPC of a stranger would be code; and the secret is in no command line."""
    stranger = start_driver(cluster, 1, PYSPARK_SUBMIT_ARGS="--conf spark.ui.enabled=false pyspark-shell")
    try:
        assert stranger.stdout is not None
        said = next(
            line for line in stranger.stdout if line.startswith("HOSTS") or "Failed to connect" in line
        )
        assert "Failed to connect to master" in said
    finally:
        stranger.kill()
        stranger.communicate()
    properties = cluster.scratch / "spark-driver.conf"
    assert properties.stat().st_mode & 0o777 == 0o600
    secret = properties.read_text().rpartition(" ")[2].strip()
    assert len(secret) == 64
    lines = [Path(f"/proc/{p.pid}/cmdline").read_bytes() for p in marked(cluster.token)]
    assert len(lines) > 2
    assert not [line for line in lines if secret.encode() in line]


def test_a_stranger_neither_reads_nor_writes_the_records(cluster: EmbeddedCluster) -> None:
    """Another user of the machine reaches the port; a topology's process reaches its own records alone."""
    ours, theirs = "/reprise/default/ours", "/reprise/default/theirs"
    for root in (ours, theirs):
        cluster.serve(root)
    with (
        connected(cluster.zk_hosts, 10.0, {}) as stranger,
        connected(cluster.zk_hosts, 10.0, cluster.zk_environment(ours)) as topology,
    ):
        for path in ("/", node_tree.ROOTS, theirs, f"{theirs}/nodes"):
            for client in (stranger, topology):
                with pytest.raises(NoAuthError):
                    client.get_children(path)
                with pytest.raises(NoAuthError):
                    client.create(f"{path.rstrip('/')}/mine", b"")
        with pytest.raises(NoAuthError):
            stranger.get(ours)
        topology.create(f"{ours}/progress", b"{}")
        mode = Path(cluster.zk_environment()["REPRISE_ZK_AUTH"], "key").stat().st_mode
        assert mode & 0o077 == 0
    for root in (ours, theirs):
        cluster.unserve(root)


def test_an_added_node_arrives_under_every_served_root(cluster: EmbeddedCluster) -> None:
    cluster.serve("/reprise/default/second")
    name = cluster.add_node()
    with pytest.raises(NodeExistsError):
        cluster.add_node(name)
    cluster.wait_for([name])
    for root in (ROOT, "/reprise/default/second"):
        until(lambda root=root: set(cluster.arrived(root)) == set(cluster.nodes), f"all nodes under {root}")
    assert cluster.arrived(ROOT)[name].host == cluster.host_of(name)
    cluster.unserve("/reprise/default/second")
    until(lambda: not cluster.arrived("/reprise/default/second"), "the nodes leave a root that is not served")
    assert set(cluster.arrived(ROOT)) == set(cluster.nodes)


def test_a_name_that_comes_back_is_a_new_incarnation(cluster: EmbeddedCluster) -> None:
    name = cluster.nodes[0]
    before = incarnations(cluster)[name]
    EmbeddedCluster.kill(cluster, [name])
    assert cluster.add_node(name) == name
    until(lambda: incarnations(cluster).get(name) == before + 1, f"{name} as incarnation {before + 1}")


def test_a_thawed_node_comes_back_as_a_new_incarnation(cluster: EmbeddedCluster) -> None:
    """Frozen past its session: everything it ran is killed, not resumed."""
    frozen, other = cluster.nodes[0], cluster.nodes[1]
    before = incarnations(cluster)
    session = session_of(cluster, frozen)
    zombies = {p.pid for p in processes.members([session])} - {session.leader}
    assert zombies
    cluster.freeze([frozen])
    assert {p.state for p in processes.members([session])} == {"T"}
    until(lambda: frozen not in cluster.arrived(ROOT), "the frozen node's znode expires")
    cluster.thaw([frozen])
    until(lambda: frozen in cluster.arrived(ROOT), "the thawed node registers")
    after = incarnations(cluster)
    assert after[frozen] == before[frozen] + 1
    assert after[other] == before[other]
    assert zombies.isdisjoint(p.pid for p in processes.members([session]))


def test_a_dead_executor_is_followed_by_another_one_and_ends_with_its_driver(
    cluster: EmbeddedCluster,
) -> None:
    before, session = incarnations(cluster), session_of(cluster, cluster.nodes[0])

    def running() -> list[processes.Process]:
        found = processes.members([session])
        return [p for p in found if b"--executor-id" in Path(f"/proc/{p.pid}/cmdline").read_bytes()]

    driver = start_driver(cluster, len(cluster.nodes), REPRISE_TEST_STAY="1")
    try:
        hosts_used(driver)
        (first,) = running()
        processes.send(first, signal.SIGKILL)
        until(lambda: running() not in ([], [first]), "the next executor")
        assert incarnations(cluster) == before
    finally:
        driver.kill()
        driver.communicate()
    until(lambda: not running(), "the executor has ended")


@pytest.mark.parametrize("how", ["restart", "long outage", "frozen"])
def test_loss_of_zookeeper_is_not_loss_of_nodes(cluster: EmbeddedCluster, how: str) -> None:
    """A server that was frozen expires all sessions as soon as it goes on: the nodes register again, unharmed."""
    before = incarnations(cluster)
    sessions = [session_of(cluster, node) for node in cluster.nodes]
    running = {p.pid for p in processes.members(sessions)}
    if how == "restart":
        cluster.zookeeper.restart()
    else:
        leave, come_back = {
            "long outage": (cluster.zookeeper.kill, cluster.zookeeper.start),
            "frozen": (cluster.zookeeper.freeze, cluster.zookeeper.thaw),
        }[how]
        leave()
        gone = time.monotonic() + 2.5 * cluster.config.session_timeout_ms / 1000
        until(lambda: time.monotonic() > gone, "longer than any session lives")
        come_back()
    restarted = time.monotonic()
    # a session that will not come back expires within its timeout after the restart; only then has nothing happened
    settled = restarted + 2 * cluster.config.session_timeout_ms / 1000
    until(
        lambda: time.monotonic() > settled and incarnations(cluster) == before,
        "the same incarnations are there",
    )
    assert running <= {p.pid for p in processes.members(sessions)}


def test_a_job_still_runs_on_every_node_after_all_that(cluster: EmbeddedCluster) -> None:
    driver = start_driver(cluster, len(cluster.nodes))
    try:
        assert hosts_used(driver) == {cluster.host_of(node) for node in cluster.nodes}
    finally:
        driver.communicate("")


def test_a_freeze_shorter_than_the_session_is_forgiven() -> None:
    """The node stops its own processes when it wakes, asks ZooKeeper, and lets the same ones go on."""
    with EmbeddedCluster(patient(1, session_s=60.0)) as forgiving:
        session = Session.of(forgiving.arrived()["n1"].pid)
        kept = {p.pid for p in processes.members([session])}
        forgiving.freeze(["n1"])
        noticed = time.monotonic() + 31  # half a session timeout makes a freeze; a heartbeat goes every third
        until(lambda: time.monotonic() > noticed, "a freeze that the agent notices")
        forgiving.thaw(["n1"])
        log = forgiving.log_dir / "n1-agent.log"
        until(lambda: "event=released" in log.read_text(), "the node asks and goes on")
        assert "event=woke" in log.read_text()
        assert incarnations(forgiving, "/reprise-embedded") == {"n1": 1}
        assert {p.pid for p in processes.members([session]) if p.state != "T"} == kept


def test_stop_leaves_nothing_and_two_clusters_do_not_clash(cluster: EmbeddedCluster) -> None:
    second = EmbeddedCluster(patient(1))
    second.start()
    scratch, token = second.scratch, second.token
    assert second.host_of("n1") != cluster.host_of(cluster.nodes[0])
    assert second.host_of("n1").rsplit(".", 1)[0] != cluster.host_of(cluster.nodes[0]).rsplit(".", 1)[0]
    second.freeze(["n1"])
    second.stop()
    second.stop()
    assert not scratch.exists()
    assert marked(token) == []
    assert set(cluster.arrived(ROOT)) == set(cluster.nodes)


_OWNER = """
import sys, time
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
cluster = EmbeddedCluster(ClusterConfig(nodes=2, start_timeout_s=300.0))
cluster.start()
print(cluster.token, cluster.scratch, flush=True)
time.sleep(600)
"""


def test_sigkill_of_the_owner_leaves_nothing() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    token, scratch = owner.stdout.readline().split()
    assert len(marked(token)) >= 6  # ZooKeeper, master, two agents, two hosts that wait
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until(lambda: not marked(token) and not Path(scratch).exists(), "nothing is left")


def test_ctrl_c_by_hand_leaves_nothing() -> None:
    hand = subprocess.Popen(
        [sys.executable, "-m", "reprise.controller.local.cluster", "--nodes", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert hand.stdout is not None
    printed = []
    for line in hand.stdout:
        printed.append(line)
        if line.startswith("Ctrl-C"):
            break
    logs = next(Path(line.split()[1]) for line in printed if line.startswith("logs"))
    assert logs.is_dir()
    hand.send_signal(signal.SIGINT)
    assert "stopped" in hand.communicate(timeout=300)[0]
    assert hand.returncode == 0
    assert not logs.exists()


def test_spark_runs_on_the_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_BUNDLED, "1")
    with EmbeddedCluster(patient(1, class_archive=False)) as bundled:
        assert Path(bundled.spark_env()["JAVA_HOME"]).is_relative_to(bundled.scratch)
        driver = start_driver(bundled, 1)
        try:
            assert hosts_used(driver) == {bundled.host_of("n1")}
        finally:
            driver.communicate("")
