"""The plugin row of provider `ssh`. The wiring imports its parts when they are needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.ssh.ssh_provider:SshProvider",
    volume_files="fleetctl.providers.ssh.ssh_access:SshFiles",
    orphans="fleetctl.providers.ssh.ssh_access:SshOrphans",
    exec="fleetctl.providers.ssh.ssh_access:SshEntering",
    run_sessions=True,
    check="fleetctl.providers.ssh.ssh_hosts:check_ssh",
)
