"""What runs in an executor's pod on Kubernetes: an agent that is the pod's heartbeat, and below it Spark's executor.

A node, to the coordinator, is one executor pod: it is named as the pod is, and its incarnation is always 1, because a pod
that is fenced ends and Spark asks for another one.  docs/decisions/0003-node-is-an-executor-pod.md says why, and why
the agent is the parent of the executor and not a container beside it.
"""
