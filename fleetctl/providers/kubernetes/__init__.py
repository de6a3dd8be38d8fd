"""Provider `kubernetes`: runs as Jobs of one pod, in a cluster that somebody has.

`provider.py` is the face. No module here imports the package `kubernetes`; fleetctl/kubernetes does
when it connects.
"""
