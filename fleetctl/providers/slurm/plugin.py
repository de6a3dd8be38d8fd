"""The plugin row of provider `slurm`. The wiring imports its parts when they are needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.slurm.slurm_provider:SlurmProvider",
    volume_files="fleetctl.providers.slurm.slurm_files:SlurmFiles",
    orphans="fleetctl.providers.slurm.slurm_orphans:SlurmOrphans",
    exec="fleetctl.providers.slurm.slurm_exec:SlurmEntering",
    check="fleetctl.providers.slurm.slurm_check:check_slurm",
)
