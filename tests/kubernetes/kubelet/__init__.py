"""A kubelet for tests: one Kubernetes node whose containers are plain processes of this machine.

It registers a Node, renews its Lease, runs the pods that the scheduler binds to it (init containers, volumes, service
account tokens, probes, restarts) and reports their status.  An image is a name prefix in a JSON file, mapped to a command.
A node lives in a PID and mount namespace of its own, so SIGKILL of its outermost process is a power cut, and volumes
appear at their real paths.  Every pod has a loopback address of its own.  Not here: cluster IPs and DNS, the logs and
exec endpoints (logs are files), enforced resource limits.  Isolation is for failure, not for security.
"""
