"""Reads a W&B sweep configuration, verbatim: its schema and its checks.

Search (config.py) is `spec.search` of a Sweep: pydantic models in W&B's own snake_case, with the
whole schema, also settings that are not supported yet. parameters.py yields each fault of the
`parameters` block with its path, and config.py reports each as an error at that path.
distributions.py states the keys of every distribution and infers one from the keys that are given;
controllers/trials/points.py draws by the same table that the checks use.
"""
