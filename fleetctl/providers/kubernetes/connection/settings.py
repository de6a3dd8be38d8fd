"""How the provider paces itself, and what its Provider object says of the cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.providers.contract.account import Account
from fleetctl.providers.remote.connection.pacing import given
from fleetctl.specs.blocks.kubernetes import ClusterSettings

PREFIX = "FLEETCTL_KUBERNETES_"


@dataclass(frozen=True, slots=True)
class Settings:
    """Each can be set in the environment."""

    # An API server takes some hundreds of creates a second; priority and fairness share them out.
    creates_per_s: float = 50.0
    creates_burst: float = 200.0
    making_max: float = 2000.0  # Jobs whose pods are waited for at once; they cost no calls
    # Of a pod whose task names no timeoutSeconds: our dead-man's switch. It cuts no task that names
    # one.
    lifetime_s: float = 7 * 86_400.0
    # A Job that has ended stays so long where nobody deletes it: longer than any holiday of a
    # controller, and its pod's log tells what became of the work.
    finished_s: float = 7 * 86_400.0
    call_s: float = 30.0  # our own deadline of one question, with all its tries
    patience_s: float = 20.0  # what is free has its pod running by then
    begin_s: float = 600.0  # an inert pod whose work does not begin ends by itself


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Raises Refused for a value that is not a positive number."""
    return given(Settings, PREFIX, os.environ if environ is None else environ)


def of_account(account: Account) -> ClusterSettings:
    """What the Provider object says of the cluster; defaults where it says nothing."""
    return ClusterSettings.model_validate(dict(account.settings))
