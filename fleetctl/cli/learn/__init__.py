"""Manifests and commands explained: explain, schema, init, convert, completion."""
