"""Where the parts of provider `endpoint` are. It has no sandbox to enter, and no volumes."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.endpoint.provider:EndpointProvider",
    orphans="fleetctl.providers.endpoint.orphans:NoOrphans",
    check="fleetctl.providers.endpoint.check:check",
)
