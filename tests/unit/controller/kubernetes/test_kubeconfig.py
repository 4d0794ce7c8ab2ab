"""Which API server and which namespace a person's kubeconfig means, and what is said where it means none."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.kubeconfig import KubeconfigError, of_kubeconfig

CONFIG = """
apiVersion: v1
kind: Config
current-context: staging
clusters:
- {name: one, cluster: {server: "https://one.test:6443"}}
contexts:
- {name: staging, context: {cluster: one, user: me}}
- {name: production, context: {cluster: one, user: me, namespace: streams}}
users:
- {name: me, user: {token: secret}}
"""


def namespace(file: Path, context: str | None) -> str:
    return of_kubeconfig(file, context, WriteBudget(1.0), "test")[1]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    ("context", "expected"), [(None, "default"), ("staging", "default"), ("production", "streams")]
)
def test_the_namespace_is_that_of_the_context(file: Path, context: str | None, expected: str) -> None:
    assert namespace(file, context) == expected


def test_a_context_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(KubeconfigError, match="nowhere"):
        namespace(file, "nowhere")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="missing"):
        namespace(tmp_path / "missing", None)


def test_a_file_that_describes_no_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(KubeconfigError):
        namespace(tmp_path / "config", None)
