"""Expands a document to the full form, and checks its envelope, namespace, size and inner manifest.

`short.py` expands first, for `rendering/render.py`; it keeps the position of each expanded part, so
that messages point at the line in the file. Then `loader.py` calls `envelope.py`: a document that
is no manifest at all ends there, otherwise `apiVersion`, `kind`, namespace, lengths and fields
without support yield findings. `inner_manifest.py` checks the object that a Schedule makes like a
manifest of its own, and moves its findings to their paths in the outer document.
"""
