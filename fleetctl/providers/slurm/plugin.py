"""The plugin row of provider `slurm`. The wiring imports its parts when they are needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.slurm.slurm_provider:SlurmProvider",
    volume_files="fleetctl.providers.slurm.slurm_access:SlurmFiles",
    orphans="fleetctl.providers.slurm.slurm_access:SlurmOrphans",
    exec="fleetctl.providers.slurm.slurm_access:SlurmEntering",
    run_sessions=True,
    check="fleetctl.providers.slurm.slurm_login:check_slurm",
)
