"""Provider `shed`: runs tasks as plain child processes, each in a directory of its own."""

from fleetctl.providers import Plugin

PLUGIN = Plugin(
    api=1,
    settings="fleetctl_shed.settings:ShedSettings",
    backend="fleetctl_shed.backend:open_backend",
    orphans="fleetctl_shed.backend:open_orphans",
    check="fleetctl_shed.backend:check_shed",
)
