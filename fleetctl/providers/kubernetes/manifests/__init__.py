"""Builds the objects that are made in a cluster, as plain dicts. Pure.

`build_job` in `jobs.py` makes the Job of a run from the template and the Provider object's
settings, with the parts of `pod_parts.py` and, for several nodes, of `gang_manifests.py`. Its
container waits until the run is begun in it, so that a Job alone does no work; retries are ours,
not the Job's. `entry.py` puts the guest into one immutable ConfigMap for all pods of a namespace.
`labels.py` gives objects the names and marks by which our store finds them again.
"""
