"""Custom resource definitions, made from the specs: `python -m fleetctl.operator.crds.write`."""
