"""The provider's pacing at Modal; every number can be set in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.providers.remote.connection.pacing import read_settings

PREFIX = "FLEETCTL_MODAL_"


@dataclass(frozen=True, slots=True)
class ModalSettings:
    """Settings of the provider. Defaults are the limits of Modal's smallest plan, as far as Modal
    documents them.
    """

    creates_per_s: float = 5.0  # sandboxes made; more is answered with RESOURCE_EXHAUSTED
    creates_burst: float = 150.0
    starts_at_once: float = 64.0  # creates under way that wait for no GPU
    queued_max: float = 32.0  # creates at Modal that may wait for a GPU; each polls twice a second
    lifetime_s: float = 86_400.0  # of a sandbox; Modal allows no more than a day
    # Until Modal has answered at all; the SDK would try for a minute. Ten seconds, less the SDK's
    # import and all else that a command does before.
    connect_s: float = 5.0
    call_s: float = 30.0  # our own deadline for a call
    spawns_per_s: float = 100.0  # calls of functions; a guess
    spawns_burst: float = 1000.0
    look_s: float = 10.0  # between two looks of a call whether its run is to end
    keep_s: float = 60.0  # between two commits of a function's volumes while a task runs
    # For a call for which its container may ask Modal again and again, while that is paid for.
    patience_s: float = 60.0
    # A request for a call's end waits this long at Modal; a second one fetches the output
    # meanwhile.
    call_wait_s: float = 20.0


def from_environment(environ: Mapping[str, str] | None = None) -> ModalSettings:
    """Raises Refused for a value that is no positive number."""
    return read_settings(ModalSettings, PREFIX, os.environ if environ is None else environ)
