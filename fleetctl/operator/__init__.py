"""Runs the controller in a cluster, where custom resources are the desired state.

`operator_process.py` waits for the lease of `elector.py`, opens the store once the leader before
has closed it, and then runs the usual engine with the mirror beside it. Each transaction of the
store checks the lease last: a process that has lost the lease makes no further change durable and
ends. `mirror/` applies custom resources and writes their statuses; `crds/` makes their definitions.
`metrics.py` serves the probes, also of a replica that waits.
"""
