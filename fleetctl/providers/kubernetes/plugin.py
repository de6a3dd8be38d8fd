"""Where the parts of provider `kubernetes` are. The wiring imports them when they are needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.kubernetes.provider:KubernetesProvider",
    volume_files="fleetctl.providers.kubernetes.assets.volume_files:KubernetesFiles",
    orphans="fleetctl.providers.kubernetes.orphans:KubernetesOrphans",
    exec="fleetctl.providers.kubernetes.runs.exec:KubernetesEntering",
    check="fleetctl.providers.kubernetes.check:check",
    sdk="kubernetes",
)
