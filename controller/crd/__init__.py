"""The Kubernetes resources: StreamTopology as people write it, Incident and RecoveryPlan as the controller writes them.

Problem: `reprise run` reads a topology file with pydantic, an API server checks the same file against a schema, the
reference explains it to people; three descriptions of one thing drift apart.  So there is one, the pydantic model
(`reprise.spark_jobs.topology.schema` for what people write, here for what the controller writes), and everything else is
generated from it: `python -m tools.generate` writes `crds/` and `docs/reference.md`, and a test fails
when they are old.

Invariants: schemas are structural and closed; everything is bounded, so the cost of every rule is; objects hold
integers, quantities and texts, no floats; what grows with a topology (assignments, positions, whole plans) stays in
ZooKeeper, and objects carry counts and the first few.

`convert` turns the coordinator's records into these objects.  Nothing here talks to anybody.
"""
