"""Declares what users may write: the pydantic models of manifests, imported as `fleetctl.specs`.

manifest/loader.py parses YAML into these models; stores keep their JSON without defaults. kinds/
has a model for each kind and the registry, blocks/ the parts that kinds share, search/ a W&B sweep
configuration, values/ the strict scalars below them. content.py is the one table that states, field
by field, if a change redoes finished work, replaces live runs or neither. builtin.py has a row for
each provider type. schemas/ is written from the models by manifest/schemas.py.
Pure: no I/O, clock, asyncio or logging, which import-linter checks.
"""
