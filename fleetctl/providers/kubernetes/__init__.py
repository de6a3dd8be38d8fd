"""Provider `kubernetes`: runs are Jobs with a single pod, in a cluster that the user already has.

`kubernetes_provider.py` is the face. No module here imports the package `kubernetes`;
fleetctl/kubernetes does when it connects.
"""
