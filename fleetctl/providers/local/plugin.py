"""Where the parts of provider `local` are. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.local.provider:LocalProvider",
    volume_files="fleetctl.providers.local.assets.volume_files:LocalFiles",
    orphans="fleetctl.providers.local.orphans:LocalOrphans",
    exec="fleetctl.providers.local.runs.exec:LocalEntering",
    check="fleetctl.providers.local.check:check",
    session="fleetctl.providers.local.interpreter.session:open_session",
    session_end="fleetctl.providers.local.interpreter.session:end_session",
    kept="fleetctl.providers.local.runs.kept:kept",
    listed_bytes="fleetctl.providers.local.assets.sizes:listed_bytes",
    caches="fleetctl.providers.local.assets.caches:LocalCaches",
)
