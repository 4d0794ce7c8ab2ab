"""What a node runs: the agent that is its heartbeat, and below it Spark's executors.

`agent` serves a node of the cluster on one machine, `pod_agent` an executor's pod on Kubernetes.  A node, to the
coordinator, is one executor pod there: it is named as the pod is, and its incarnation is always 1, because a pod that is
fenced ends and Spark asks for another one.  docs/decisions/0003-node-is-an-executor-pod.md says why, and why the agent is
the parent of the executor and not a container beside it.
"""
