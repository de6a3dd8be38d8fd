"""The plugin row of provider `endpoint`. It has no sandbox to enter, and no volumes."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.endpoint.endpoint_provider:EndpointProvider",
    orphans="fleetctl.providers.endpoint.endpoint_provider:NoOrphans",
    check="fleetctl.providers.endpoint.gateway_connection:check_endpoint",
)
