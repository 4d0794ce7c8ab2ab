"""The Kubernetes operator: StreamTopology objects in, driver pods, recoveries, Incident and RecoveryPlan objects out.

Who does what:
- `handlers` is kopf: it knows which topologies there are and has one `watching` loop around each `TopologyController`.
- `surroundings`, and `informer` of `reprise.controller.kubernetes`, know pods and machines; `pace` says how often one
  looks when there are many topologies.
- `topology` brings about what one object asks for, level-triggered: each step looks at everything and does the next thing.
- `verdict`, `capacity`, `manifests`, and `pods` of `reprise.controller.kubernetes` are pure: what Kubernetes says, what
  that means for a node and for those that wait for one, what is applied.
- `records` joins the coordinator (`reprise.controller.coordinator`, the very same as in embedded mode) and the fencing of
  pods.
- `teller` and `publish` write what the records in ZooKeeper say into the objects that people look at.
- `reprise.controller.kubernetes` talks to the API server: no more than so many writes a second, and one operator at a time.

Invariants: decisions are the scheduler's alone.  A pod's partitions go elsewhere only in the transaction that also
fences the pod.  What Kubernetes or ZooKeeper does not answer is unknown, and the unknown changes nothing.
"""
