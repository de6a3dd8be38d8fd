"""Declares the kinds: a file for the model of each, and the registry with a row for each.

registry.py holds all that screens, clients and pages know of a kind: names, unit, columns, fields
of `describe`, starter, the engine's part. A row is a named tuple that names its model as
`module:class`; the model is imported when first requested, so that read verbs load no pydantic.
dump_spec writes the JSON that a store keeps, and parse_spec reads it. shown.py has the types of
columns and fields. Files of kinds do not import each other, which import-linter checks; decisions
of a kind are in controllers/kinds.
"""
