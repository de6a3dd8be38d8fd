"""The plugin row of provider `daytona`. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin, ProviderServer

PLUGIN = Plugin(
    backend="fleetctl.providers.daytona.daytona_provider:DaytonaProvider",
    volume_files="fleetctl.providers.daytona.assets.daytona_volumes:DaytonaFiles",
    orphans="fleetctl.providers.daytona.daytona_orphans:DaytonaOrphans",
    exec="fleetctl.providers.daytona.runs.daytona_exec:DaytonaEntering",
    check="fleetctl.providers.daytona.daytona_check:check_daytona",
    run_sessions=True,
    sdk="daytona",
    server=ProviderServer("DAYTONA_API_KEY", "https://app.daytona.io/api", "DAYTONA_API_URL"),
)
