"""Where each part of the provider is. Read by wiring; imports none of them."""

from __future__ import annotations

from fleetctl.providers.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.daytona.provider:DaytonaProvider",
    volume_files="fleetctl.providers.daytona.assets.volume_files:DaytonaFiles",
    orphans="fleetctl.providers.daytona.orphans:DaytonaStrays",
    exec="fleetctl.providers.daytona.runs.exec:DaytonaEntering",
    check="fleetctl.providers.daytona.check:check",
    session="fleetctl.providers.daytona.interpreter.session:open_session",
)
