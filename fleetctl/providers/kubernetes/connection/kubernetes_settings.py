"""The provider's pacing, and the Provider object's settings of the cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.providers.contract.account import Account
from fleetctl.providers.remote.connection.pacing import read_settings
from fleetctl.specs.blocks.kubernetes import ClusterSettings

PREFIX = "FLEETCTL_KUBERNETES_"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Each can be set in the environment."""

    # An API server takes some hundreds of creates a second; priority and fairness share them out.
    creates_per_s: float = 50.0
    creates_burst: float = 200.0
    making_max: float = 2000.0  # Jobs whose pods are waited for at once; they cost no calls
    # For a pod whose task names no timeoutSeconds: our dead-man's switch. It cuts no task that
    # names a timeoutSeconds.
    lifetime_s: float = 7 * 86_400.0
    # An ended Job stays for this time unless it is deleted: longer than any holiday of a
    # controller, and its pod's log shows the end of the work.
    finished_s: float = 7 * 86_400.0
    call_s: float = 30.0  # our own deadline for a call, with all its tries
    patience_s: float = 20.0  # a pod with a free node runs by then
    begin_s: float = 600.0  # an inert pod whose work does not begin ends by itself


def from_environment(environ: Mapping[str, str] | None = None) -> KubernetesSettings:
    """Raises Refused for a value that is not a positive number."""
    return read_settings(KubernetesSettings, PREFIX, os.environ if environ is None else environ)


def of_account(account: Account) -> ClusterSettings:
    """Returns the cluster's settings from the Provider object; defaults for missing ones."""
    return ClusterSettings.model_validate(dict(account.settings))
