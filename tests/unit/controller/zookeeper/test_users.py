"""Users on a real ZooKeeper: a topology reaches its own records, nobody else's, and a stranger reaches nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.errors import StartError
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import users as zk_users
from reprise.controller.zookeeper.access import AUTH, TLS, Access
from reprise.controller.zookeeper.client import Client, make_client
from reprise.controller.zookeeper.errors import NoAuthError, SessionError
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.users import Keys
from tests.kafka.certificates import Authority
from tests.support.zookeeper import session, zookeeper
from tools.testbed.waiting import until

pytestmark = pytest.mark.slow
A, B = "/reprise/ns/a", "/reprise/ns/b"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper(users=True) as server:
        yield server


@pytest.fixture
def control_plane(server: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    with session(server, access_of(server).control_plane()) as client:
        yield client


@pytest.fixture(params=["another topology", "nobody"])
def other(request: pytest.FixtureRequest, server: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    environment = access_of(server).topology(B) if request.param == "another topology" else {}
    with session(server, environment) as client:
        yield client


def access_of(server: ZooKeeperServer) -> Access:
    assert server.access is not None
    return server.access


def tree(client: ZooKeeperSession, root: str) -> None:
    """Records made in every way that there is: with folders or without, in a transaction, ephemeral, written later."""
    client.ensure_path(f"{root}/nodes")
    client.create(f"{root}/owner", b"uid")
    client.create(f"{root}/commands/paused", b"true", makepath=True)
    transaction = client.transaction()
    transaction.create(f"{root}/desired", b"{}")
    transaction.create(f"{root}/nodes/n1", b"{}", ephemeral=True)
    assert transaction.commit() == [None, None]
    client.create(f"{root}/driver")
    client.set(f"{root}/driver", b"1", 0)


def remove(client: ZooKeeperSession, *roots: str) -> None:
    for root in roots:
        client.delete(root, recursive=True)


def every(client: ZooKeeperSession, root: str) -> list[str]:
    found = [root]
    for name in client.get_children(root):
        found += every(client, f"{root}/{name}")
    return found


def test_no_other_reads_or_writes_a_topology_s_records(
    server: ZooKeeperServer, control_plane: ZooKeeperSession, other: ZooKeeperSession
) -> None:
    tree(control_plane, A)
    paths = every(control_plane, A)
    assert len(paths) == 8
    for path in paths:
        attempts: list[Callable[[], object]] = [
            lambda path=path: other.get(path),
            lambda path=path: other.get_children(path),
            lambda path=path: other.set(path, b"mine"),
            lambda path=path: other.create(f"{path}/mine", b""),
            lambda path=path: other.set_acls(path, OPEN_ACL_UNSAFE),
        ]
        attempts += [lambda path=path: other.delete(path)] if path.count("/") > 3 else []
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()
    remove(control_plane, A)


def test_nobody_takes_a_place_before_its_topology_comes(
    control_plane: ZooKeeperSession, other: ZooKeeperSession
) -> None:
    control_plane.ensure_path("/reprise/ns")
    for path in ("/mine", "/zookeeper/mine", "/zookeeper/quota/mine", "/reprise/mine", "/reprise/ns/c"):
        with pytest.raises(NoAuthError):
            other.create(path, b"")
    with pytest.raises(NoAuthError):
        other.create("/reprise/ns/c/desired", b"", makepath=True)
    with pytest.raises(NoAuthError):
        other.get_children("/")


def test_a_topology_works_with_its_records_and_the_control_plane_with_what_it_makes(
    server: ZooKeeperServer, control_plane: ZooKeeperSession
) -> None:
    control_plane.ensure_path(A)
    with session(server, access_of(server).topology(A)) as topology:
        tree(topology, A)
        assert topology.get(f"{A}/desired")[0] == b"{}"
        for path in every(control_plane, A):
            control_plane.set(path, b"1")
            assert topology.get(path)[0] == b"1"
            with pytest.raises(NoAuthError):  # who may do what is the control plane's to say
                topology.set_acls(path, OPEN_ACL_UNSAFE)
        remove(control_plane, A)


def test_a_restart_changes_nothing(server: ZooKeeperServer) -> None:
    with session(server, access_of(server).control_plane()) as client:
        client.create(f"{A}/desired", b"kept", makepath=True)
    server.restart()
    with session(server, {}) as nobody, pytest.raises(NoAuthError):
        nobody.get(f"{A}/desired")
    with session(server, access_of(server).control_plane()) as client:
        assert client.get(f"{A}/desired")[0] == b"kept"
        remove(client, A)


def test_records_from_before_there_were_users_are_closed(tmp_path: Path) -> None:
    """They work as they are, and belong to their topology and the control plane afterwards."""
    with zookeeper() as server:
        users = Access(tmp_path / "users")
        users.write()
        with session(server, {}) as nobody, session(server, users.control_plane()) as client:
            tree(nobody, A)
            assert not zk_users.is_closed(client, A, users.keys)
            client.set(f"{A}/desired", b"2")
            assert zk_users.close(client, A, users.keys) == 10
            assert zk_users.is_closed(client, A, users.keys)
            for path in every(client, A):
                with pytest.raises(NoAuthError):
                    nobody.get(path)
            with session(server, users.topology(A)) as topology:
                assert {topology.get(path)[0] for path in every(topology, A)} >= {b"2", b"uid"}


@pytest.mark.parametrize("former", ["former-key", "digest"])
def test_what_was_one_user_s_or_another_key_s_is_taken_over(former: str, tmp_path: Path) -> None:
    """Until then the control plane works with it, as who it was."""
    password = "f" * 32
    before: dict[str, Any] = {"default_acl": CREATOR_ALL_ACL, "auth_data": [("digest", f"me:{password}")]}
    if former == "former-key":
        before = {
            "auth_data": [("digest", Keys(password).control_plane.login)],
            "allowed": Keys(password).allowed,
        }
    for name, text in (("key", "n" * 32), (former, password if former == "former-key" else f"me:{password}")):
        (tmp_path / name).write_text(text)
    with zookeeper() as server:
        was = ZooKeeperSession(Client(server.hosts, timeout=10, **before))
        was.start(timeout=300)
        tree(was, A)
        with session(server, {AUTH: str(tmp_path)}) as client:
            client.set(f"{A}/desired", b"2")
            assert not zk_users.is_closed(client, A, Keys("n" * 32))
            assert zk_users.close(client, A, Keys("n" * 32)) == 10
            assert zk_users.is_closed(client, A, Keys("n" * 32))
        with pytest.raises(NoAuthError):
            was.get(f"{A}/desired")
        was.close()


def test_a_server_on_which_somebody_was_faster_is_not_used(tmp_path: Path) -> None:
    with closing(ProcessReaper()) as reaper:
        jvm = Jvm(find_java(reaper.scratch / "java"), reaper.scratch / "log4j2.properties")
        jvm.write_log_config()
        data = tmp_path / "data"
        open_server = ZooKeeperServer(jvm, reaper, data_dir=data)
        open_server.start()
        with session(open_server, {}) as stranger:
            stranger.create("/reprise", b"")
        open_server.stop()
        access = Access(tmp_path / "users")
        access.write()
        server = ZooKeeperServer(jvm, reaper, data_dir=data, access=access)
        with pytest.raises(StartError, match="somebody else has made reprise"):
            server.start()


@pytest.mark.wide
def test_the_chart_s_server_is_closed_and_stays_so_when_it_has_lost_its_data(tmp_path: Path) -> None:
    """What is there already works on; the operator may be there before the server is."""
    keys, ending = Keys("k" * 32), Event()
    (tmp_path / "key").write_text(keys.key)
    with zookeeper() as server, session(server, {}) as stranger:
        stranger.create("/theirs", b"")
        with session(server, {AUTH: str(tmp_path)}) as operator:
            keeper = Thread(target=zk_users.keep_server_closed, args=(operator, keys, ending, 0.05))
            keeper.start()
            try:
                for _ in range(2):  # what a new, empty volume looks like: its root is open again
                    until(lambda: refused(lambda: stranger.get_children("/")), "it is closed")
                    assert refused(lambda: stranger.create("/mine", b""))
                    assert refused(lambda: stranger.create("/zookeeper/mine", b""))
                    stranger.set("/theirs", b"1")
                    operator.set_acls("/", OPEN_ACL_UNSAFE)
            finally:
                ending.set()
                keeper.join()


def test_a_server_that_another_key_has_closed_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    former, keys, ending = Keys("f" * 32), Keys("k" * 32), Event()
    (tmp_path / "key").write_text(keys.key)
    with zookeeper() as server, session(server, {AUTH: str(tmp_path)}) as operator:
        operator.set_acls("/", former.allowed("/"))
        keeper = Thread(target=zk_users.keep_server_closed, args=(operator, keys, ending, 0.01))
        keeper.start()
        until(lambda: "event=server-not-closed" in caplog.text, "it is said")
        ending.wait(0.2)
        ending.set()
        keeper.join()
    assert caplog.text.count("event=server-not-closed") == 1


def refused(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except NoAuthError:
        return True
    return False


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder as a Secret of type kubernetes.io/tls is mounted: of a server at 127.0.0.1."""
    return issued(Authority(tmp_path / "authority"), tmp_path / "tls", "127.0.0.1")


def issued(authority: Authority, folder: Path, address: str) -> Path:
    folder.mkdir()
    certificate, key = authority.issue(folder.name, address)
    for name, file in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", authority.certificate)):
        (folder / name).write_text(file.read_text())
    return folder


@pytest.mark.wide
def test_with_certificates_it_speaks_tls_alone(certificates: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "another")
    strangers = issued(authority, tmp_path / "strangers", "127.0.0.1")
    with zookeeper(tls=certificates) as server:
        tree_with_tls(server)
        ours = access_of(server).control_plane()
        for environment in ({AUTH: ours[AUTH]}, ours | {TLS: str(strangers)}):
            client = make_client(server.hosts, 10.0, environment)
            with pytest.raises(SessionError):
                client.start(timeout=3)
            client.close()
        # the server shows the certificate that the strangers' authority has not signed, so they stay away as well
        half = tmp_path / "half"
        half.mkdir()
        for name, folder in (("ca.crt", certificates), ("tls.crt", strangers), ("tls.key", strangers)):
            (half / name).write_text((folder / name).read_text())
        client = make_client(server.hosts, 10.0, ours | {TLS: str(half)})
        with pytest.raises(SessionError):  # it trusts the server, and the server does not trust it
            client.start(timeout=3)
        client.close()
        server.restart()
        tree_with_tls(server)


def tree_with_tls(server: ZooKeeperServer) -> None:
    with session(server, access_of(server).control_plane()) as client:
        tree(client, A)
        with session(server, access_of(server).topology(A)) as topology:
            assert topology.get(f"{A}/owner")[0] == b"uid"
        remove(client, A)
