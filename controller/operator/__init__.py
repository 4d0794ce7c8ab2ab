"""The Kubernetes operator: StreamTopology objects in, driver pods, recoveries, Incident and RecoveryPlan objects out.

Who does what:
- `handlers` is kopf: it knows which topologies there are and starts one `TopologyLoop` for each.
- `loop` says when a topology is looked at and by which thread; `TopologyController` brings about what one object asks for,
  level-triggered: each step looks at everything and does the next thing.
- `pods` knows the pods of a topology and the Kubernetes nodes that they run on, judges each and ends those that are lost.
- `status` writes what the records in ZooKeeper say into the objects that people look at.
- `records` joins the coordinator (`reprise.controller.coordinator`, the very same as in `reprise run`) and the fencing of
  pods.
- `reprise.controller.kubernetes` talks to the API server: no more than so many writes a second, and one operator at a time.

Invariants: decisions are the scheduler's alone.  A pod's partitions go elsewhere only when the pod is fenced, at the latest
in the same transaction.  What Kubernetes or ZooKeeper does not answer is unknown, and the unknown changes nothing.
"""
