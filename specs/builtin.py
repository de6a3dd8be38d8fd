"""The sorts of providers that are built in. Imported where nothing heavy may be: has no model."""

from __future__ import annotations

# A provider of each sort is there without being declared, under the same name; a test holds them to
# fleetctl/wiring/plugins.py.
BUILT_IN = ("daytona", "local", "modal")
