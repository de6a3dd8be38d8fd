"""Where the parts of provider `daytona` are. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin, Server

PLUGIN = Plugin(
    backend="fleetctl.providers.daytona.provider:DaytonaProvider",
    volume_files="fleetctl.providers.daytona.assets.volume_files:DaytonaFiles",
    orphans="fleetctl.providers.daytona.orphans:DaytonaOrphans",
    exec="fleetctl.providers.daytona.runs.exec:DaytonaEntering",
    check="fleetctl.providers.daytona.check:check",
    session="fleetctl.providers.daytona.interpreter.session:open_session",
    session_end="fleetctl.providers.daytona.interpreter.session:end_session",
    sdk="daytona",
    server=Server("DAYTONA_API_KEY", "https://app.daytona.io/api", "DAYTONA_API_URL"),
)
