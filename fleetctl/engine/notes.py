"""Annotations that we keep on objects ourselves; an apply leaves them as they are."""

from __future__ import annotations

# What `source.path` held when its object was applied.
REVISION = "fleetctl.dev/source-revision"
# What its whole work was estimated to cost when its spec was applied; see controllers/estimate.py.
ESTIMATE = "fleetctl.dev/estimate"
# The last `retry` that was carried out, so that one that got no answer may be repeated.
RETRIED = "fleetctl.dev/retried"

NOTES = (ESTIMATE, RETRIED, REVISION)
