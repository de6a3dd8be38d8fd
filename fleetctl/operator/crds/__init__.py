"""Makes the files of deploy/ that follow from the specs: definitions, roles, health for Argo CD.

`python -m fleetctl.operator.crds.write` writes all of them, and a test compares them with the
specs. `definition.py` builds a CustomResourceDefinition from the kind's row in the registry, its
model and its columns, so that a new kind needs no change here; `roles.py` lists the rights. Types
that a structural schema cannot express stay open: our own validation refuses such a resource in a
condition. The operator never writes definitions: a cluster has those that its user applied.
"""
