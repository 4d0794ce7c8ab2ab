"""Credentials for ZooKeeper: obeyed or refused, never fallen back from; and who may do what with which znode."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import Permissions

from reprise.controller.errors import ConfigError
from reprise.controller.zookeeper.access import AUTH, TLS, Access, client_options, keys_of, topology_files
from reprise.controller.zookeeper.client import Client
from reprise.controller.zookeeper.users import Keys, User, root_above

KEY = "k" * 32
A, B = "/reprise/ns/a", "/reprise/ns/b"


def test_without_variables_nothing_is_asked_for() -> None:
    assert client_options({}) == {} == client_options({TLS: "", AUTH: ""})
    assert keys_of({}) is None is keys_of({AUTH: ""})


def test_tls_names_its_files_and_checks_the_server(tmp_path: Path) -> None:
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / name).write_text("x")
    found = client_options({TLS: str(tmp_path)})
    assert found["use_ssl"] and found["verify_certs"] and found["check_hostname"]
    assert [Path(found[k]).name for k in ("ca", "certfile", "keyfile")] == ["ca.crt", "tls.crt", "tls.key"]
    Client("127.0.0.1:1", **found)  # takes them all


@pytest.mark.parametrize(("variable", "name"), [(TLS, "ca.crt"), (AUTH, "key")])
def test_a_missing_file_is_named_and_nothing_falls_back(variable: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: there is no file {tmp_path}/{name}"):
        client_options({variable: str(tmp_path)})


def test_one_user_for_all_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "digest").write_text("reprise:secret")
    with pytest.raises(ConfigError, match=f"there is no file {tmp_path}/key"):
        client_options({AUTH: str(tmp_path)})


@pytest.mark.parametrize("text", ["", "user", "user:", ":password"])
def test_what_is_no_user_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "user").write_text(text)
    with pytest.raises(ConfigError, match=f"{tmp_path}/user is not written user:password"):
        client_options({AUTH: str(tmp_path)})


def test_a_topology_s_user_without_the_control_plane_s_is_refused(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("/reprise/ns/a:secret")
    with pytest.raises(ConfigError, match=f"there is no file {tmp_path}/control-plane"):
        client_options({AUTH: str(tmp_path)})


def test_a_short_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("tr0ub4dor\n")
    with pytest.raises(ConfigError, match="9 characters") as raised:
        client_options({AUTH: str(tmp_path)})
    assert "tr0ub4dor" not in str(raised.value) and "tr0ub4dor" not in repr(Keys(KEY + "tr0ub4dor"))


def test_the_control_plane_still_shows_who_it_was(tmp_path: Path) -> None:
    for name, text in (("key", KEY), ("former-key", "f" * 32), ("digest", "reprise:secret\n")):
        (tmp_path / name).write_text(text)
    logins = [login for _, login in client_options({AUTH: str(tmp_path)})["auth_data"]]
    assert logins == [Keys(KEY).control_plane.login, Keys("f" * 32).control_plane.login, "reprise:secret"]


@pytest.mark.parametrize(
    ("path", "root"),
    [
        (A, A), (f"{A}/nodes/n1", A), ("/reprise/ns/a-2", "/reprise/ns/a-2"),
        ("/", None), ("/reprise", None), ("/reprise/ns", None), ("/reprise-embedded/roots/x", None),
        ("/x/reprise/ns/a", None),
    ],
)  # fmt: skip
def test_the_root_that_a_path_belongs_to(path: str, root: str | None) -> None:
    assert root_above(path) == root


def test_every_user_has_a_password_of_its_own_that_comes_back() -> None:
    keys = Keys(KEY)
    users = [keys.control_plane, keys.topology(A), keys.topology(B), Keys("j" * 32).topology(A)]
    assert len({user.password for user in users}) == 4
    assert users[1] == Keys(KEY).topology(A) and users[1].name == A
    assert users[1].password not in repr(users[1]) and KEY not in repr(keys)


@pytest.mark.parametrize("root", ["", "/", "/reprise/ns", f"{A}/nodes"])
def test_nobody_but_topologies_has_a_user(root: str) -> None:
    with pytest.raises(ConfigError, match="root"):
        Keys(KEY).topology(root)


def test_both_sides_give_the_same_rights(tmp_path: Path) -> None:
    """What a topology makes below its root has the rights that the control plane would give it."""
    keys = Keys(KEY)
    for name, text in topology_files(keys, A).items():
        (tmp_path / name).write_text(text)
    topology = client_options({AUTH: str(tmp_path)})
    assert topology["auth_data"] == [("digest", keys.topology(A).login)]
    assert topology["allowed"](f"{A}/progress") == keys.allowed(f"{A}/progress")
    assert not {keys.topology(A).id} & {acl.id.id for acl in topology["allowed"](f"{B}/progress")}


def test_rights_follow_from_the_path() -> None:
    keys = Keys(KEY)
    ours, topology = keys.allowed(f"{A}/nodes")
    assert (ours.id.id, ours.perms) == (keys.control_plane.id, Permissions.ALL)
    assert (topology.id.id, topology.perms) == (keys.topology(A).id, Permissions.ALL & ~Permissions.ADMIN)
    for above in ("/", "/reprise", "/reprise/ns"):
        assert [acl.id.id for acl in keys.allowed(above)] == [keys.control_plane.id]


def test_a_login_may_have_colons_in_its_password() -> None:
    assert User.of_login("me:a:b\n").password == "a:b"


def test_what_a_run_makes_is_for_its_user_alone(tmp_path: Path) -> None:
    access = Access(tmp_path / "users")
    access.write()
    ours, theirs = access.control_plane(), access.topology(A)
    assert access.topology(A) == theirs and theirs[AUTH] != ours[AUTH]
    assert ours[TLS] == theirs[TLS] == ""  # whatever the environment says of another server
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3 and {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "users").iterdir()} == {0}
    assert client_options(theirs)["auth_data"] == [("digest", access.keys.topology(A).login)]
    assert keys_of(ours) == access.keys
    with pytest.raises(ConfigError, match="no file"):
        keys_of(theirs)  # a topology derives nobody
