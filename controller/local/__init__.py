"""A topology on this machine: the cluster (`cluster`), what breaks it (`faults`), a run (`run`) and its report (`report`).

The law of this package: nothing that runs on Kubernetes imports it.
"""
