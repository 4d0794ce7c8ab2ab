"""What the operator is told at its start; checked once, when the value is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_network

from reprise.controller.kubernetes.errors import SettingsError
from reprise.controller.zookeeper.node_record import SESSION_S
from reprise.controller.zookeeper.users import Keys
from reprise.scheduler.model import Policy

METADATA_SERVICES = ("169.254.169.254/32", "fd00:ec2::254/128")
"""Where clouds give out a machine's own credentials to whoever asks from it."""


LEAVING_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/spot-itn=120",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/scheduled-maintenance",
    "cloud.google.com/impending-node-termination=25",
    "remediator.kubernetes.azure.com/unschedulable",
)
LEAVING_CONDITIONS = ("Terminating=25",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Every setting with its unit and the reason for its default."""

    namespace: str
    """Where the operator itself runs, and its lease."""

    identity: str
    """Its pod's name: who holds the lease."""

    zk: str
    """ZooKeeper hosts, for operator, drivers and agents."""

    image: str
    """Of drivers and executors that name none."""

    zk_tls_secret: str = ""
    """Secret with ca.crt, tls.crt and tls.key that pods of topologies mount, in each namespace; empty for plain text."""

    zk_own: bool = False
    """Whether nobody else uses that ZooKeeper; with users it is then closed to all others from its root on."""

    own_secrets: tuple[str, ...] = ()
    """Secrets of the control plane, which no topology may name."""

    zk_keys: Keys | None = field(default=None, repr=False)
    """Of ZooKeeper's users: each topology then has one of its own, and its pods mount a Secret that is made for it. None:
    there are no users."""

    driver_account: str = "reprise-driver"
    """Service account of drivers whose topology names none."""

    own_account: str = ""
    """Service account of the operator itself, which no topology may have; empty where it is not known."""

    own_namespace: bool = False
    """Whether topologies may be in the operator's namespace. Default no: their code could reach its account."""

    accounts: tuple[str, ...] = ()
    """Service accounts that topologies may name beside `driver_account`; `*` stands for any part of a name."""

    secrets: tuple[str, ...] = ("topology-*",)
    """Secrets that topologies may name, written the same way. Default by their names: the operator reads no Secret, so
    it sees no labels of theirs."""

    config_maps: tuple[str, ...] = ("topology-*",)
    """ConfigMaps that topologies may name as their code, written the same way."""

    network_policies: bool = False
    """Whether a NetworkPolicy is made for each topology (needs the right to). Default no, as the chart says it: with a
    network that enforces none it would promise what does not hold."""

    open_metrics: bool = False
    """Whether these policies let everybody scrape a driver at `metrics_port`."""

    denied_egress: tuple[str, ...] = METADATA_SERVICES
    """Blocks of addresses that pods of topologies may not call, for these policies."""

    api_ports: tuple[int, ...] = (443, 6443)
    """Of the API server, for these policies: drivers call it."""

    watch: tuple[str, ...] = ()
    """Namespaces whose topologies are looked after; none means all, which needs a ClusterRole."""

    nodes: bool = True
    """Whether the operator may read Node objects (a ClusterRole). Without, a lost one is seen by heartbeats alone."""

    capacity: bool = False
    """Whether it may read all pods of the cluster (a ClusterRole), to know what room Kubernetes nodes have."""

    writes_per_s: int = 20
    """Most writes a second to the API server. Default 20: a burst of failures must not become a burst of writes."""

    lease: str = "reprise-operator"
    """Name of the Lease."""

    lease_s: float = 8.0
    """How long a leader that has gone silent keeps the lease. Default 8: hand-over in seconds, and two renewals in a row
    may fail."""

    session_s: float = SESSION_S
    """ZooKeeper session timeout of operator and agents: how long after a death it is noticed."""

    settle_s: float = Policy().settle_s
    """How long to wait for the rest of a burst."""

    driver_grace_s: float = 60.0
    """How long after a restart of a driver to wait for its executors; pods take longer to come than processes."""

    driver_silent_s: float = 60.0
    """A driver without a new report for so long, while ZooKeeper answers, is ended and started anew. Default 60: it reports
    at least every 2 s, also while a job hangs, and one that waits for ZooKeeper to come back tries at least every 2 s."""

    machine_lost_s: int = 5
    """How long pods stay on a Kubernetes node that was found not ready or unreachable, where their topology does not say
    otherwise. Default 5, in place of Kubernetes' 300: by then the node has been silent for most of a minute already."""

    notice_s: int = 0
    """How long an executor pod that is told to end works on, so that what it has can move. Default 0: it ends at once."""

    leaving_taints: tuple[str, ...] = LEAVING_TAINTS
    """Taints of Kubernetes nodes that will be taken away, whose pods are emptied meanwhile: `key`, or `key=seconds` where it
    is known how soon. Default: cordoned nodes, and what well-known autoscalers and handlers of interruptions put there."""

    leaving_conditions: tuple[str, ...] = LEAVING_CONDITIONS
    """Conditions of Kubernetes nodes that say the same while they are True: `type`, or `type=seconds`. Default: what the
    termination handler of OpenShift and the machine controller of Gardener set; 25, as clouds give 30 s at the least."""

    switches: str = ""
    """ConfigMap in `namespace` with the keys `paused` and `recommend`: for all topologies at once, without a restart."""

    health_port: int = 8080
    """Of the probes; 0 for none."""

    log_format: str = "text"
    """text or json; also of drivers and executors."""

    metrics_port: int = 0
    """Of the operator's own metrics and of its drivers'; 0 for none."""

    web_port: int = 0
    """Of the web page, which is read-only; 0 for none."""

    web_names: tuple[str, ...] = ()
    """Host names by which it is asked for, beside the loopback's and the pod's address: of its Service, of a proxy."""

    web_token: str = ""
    """File with the token that it asks for; empty: it asks nobody."""

    web_host: str = ""
    """Its address; empty for all, as `kubectl port-forward` comes to a pod's loopback address."""

    keep_records: int = 100
    """Closed incidents of a topology whose records stay in ZooKeeper, with their plans."""

    keep_records_mi: int = 4
    """MiB that these may take there; the oldest go first. Default 4: ZooKeeper holds all records in its memory."""

    keep_incidents: int = 20
    """Closed Incidents kept as objects for each topology, with their plans."""

    def __post_init__(self) -> None:
        for name in ("namespace", "identity", "zk", "image"):
            if not getattr(self, name):
                raise SettingsError(f"{name}: must not be empty")
        for name in ("writes_per_s", "lease_s", "session_s", "settle_s", "driver_grace_s", "keep_incidents",
                     "keep_records", "keep_records_mi",
                     "driver_silent_s"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name}: {getattr(self, name)} is not positive")
        if self.notice_s < 0:
            raise SettingsError(f"notice_s: {self.notice_s} is negative")
        if self.machine_lost_s < 0:
            raise SettingsError(f"machine_lost_s: {self.machine_lost_s} is negative")
        for name in ("leaving_taints", "leaving_conditions"):
            for text in getattr(self, name):
                _notice(name, text)
        for block in self.denied_egress:
            try:
                ip_network(block)
            except ValueError as error:
                raise SettingsError(f"denied_egress: {block!r} is no block of addresses: {error}") from error
        for name in ("health_port", "metrics_port", "web_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise SettingsError(f"{name}: {getattr(self, name)} is no port")

    @property
    def leaving_by_taint(self) -> dict[str, float | None]:
        """Seconds that a Kubernetes node with this taint has left, by the taint's key; None: nobody says."""
        return dict(_notice("leaving_taints", text) for text in self.leaving_taints)

    @property
    def leaving_by_condition(self) -> dict[str, float | None]:
        """Seconds that a Kubernetes node has left from when a condition of this type became True; None: nobody says."""
        return dict(_notice("leaving_conditions", text) for text in self.leaving_conditions)


def _notice(name: str, text: str) -> tuple[str, float | None]:
    """One entry of the setting `name`; SettingsError for what is not `key` or `key=seconds`."""
    key, mark, seconds = text.partition("=")
    try:
        lasts = float(seconds) if mark else None
    except ValueError:
        lasts = -1.0
    if not key or (lasts is not None and not 0 < lasts < 1e6):
        raise SettingsError(f"{name}: {text!r} is not `key` or `key=seconds`")
    return key, lasts
