"""The plugin row of provider `local`. Read by the wiring, which imports them when needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.local.local_provider:LocalProvider",
    volume_files="fleetctl.providers.local.assets.local_volumes:LocalFiles",
    orphans="fleetctl.providers.local.local_orphans:LocalOrphans",
    exec="fleetctl.providers.local.runs.local_access:LocalEntering",
    check="fleetctl.providers.local.local_check:check_local",
    session="fleetctl.providers.local.local_session:open_session",
    session_end="fleetctl.providers.local.local_session:end_session",
    kept="fleetctl.providers.local.runs.local_access:find_work_dir",
    listed_bytes="fleetctl.providers.local.assets.local_sizes:listed_bytes",
    caches="fleetctl.providers.local.assets.local_caches:LocalCaches",
)
