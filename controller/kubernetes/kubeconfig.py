"""A client as a person's kubeconfig describes it, for the command line."""

from __future__ import annotations

from pathlib import Path

from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.config.config_exception import ConfigException

from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.errors import OperatorError


class KubeconfigError(OperatorError):
    """There is no kubeconfig, or it does not describe a cluster."""


def of_kubeconfig(
    kubeconfig: Path | None, context: str | None, budget: WriteBudget, manager: str
) -> tuple[Api, str]:
    """The API server of a context (None: the current one), and the namespace of that context.  `kubeconfig`: None for where
    kubectl looks.  Raises KubeconfigError."""
    configuration = Configuration()
    file = str(kubeconfig) if kubeconfig else None
    try:
        config.load_config(client_configuration=configuration, config_file=file, context=context)
        contexts, current = config.list_kube_config_contexts(config_file=file)
    except ConfigException as error:
        raise KubeconfigError(f"{file}: {error}" if file else str(error)) from error
    wanted = context or current["name"]
    chosen = next((c for c in contexts if c["name"] == wanted), current)
    return Api(budget, configuration, manager), chosen["context"].get("namespace", "default")
