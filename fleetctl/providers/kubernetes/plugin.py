"""The plugin row of provider `kubernetes`. The wiring imports them when they are needed."""

from __future__ import annotations

from fleetctl.providers.contract.plugin import Plugin

PLUGIN = Plugin(
    backend="fleetctl.providers.kubernetes.kubernetes_provider:KubernetesProvider",
    volume_files="fleetctl.providers.kubernetes.kubernetes_volumes:KubernetesFiles",
    orphans="fleetctl.providers.kubernetes.kubernetes_orphans:KubernetesOrphans",
    exec="fleetctl.providers.kubernetes.runs.kubernetes_exec:KubernetesEntering",
    check="fleetctl.providers.kubernetes.kubernetes_check:check_kubernetes",
    sdk="kubernetes",
)
