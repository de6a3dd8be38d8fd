"""What an engine reaches beyond its store and its providers. Called by whoever wires one; without a
part nothing of its sort is done, as in most tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.engine.kinds.backups.backups import Make
from fleetctl.engine.kinds.gitops.keeper import Keeper
from fleetctl.engine.kinds.notices.delivery import Send
from fleetctl.engine.kinds.schedules.maker import Maker
from fleetctl.gateway.reach.gateway import Gateway
from fleetctl.retention.cleaner import Cleaner
from fleetctl.wandb.client import Connect


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """wandb: connects to W&B's service, for sweeps of an account. gateway: of model endpoints.
    maker: stores what schedules ask for. keeper: fetches and stores what Sources name. backup:
    writes one. cleaner: lets go of what is over on this machine's disk. send: tells a sink of
    notices, which wait for an engine that can.
    """

    wandb: Connect | None = None
    gateway: Gateway | None = None
    maker: Maker | None = None
    keeper: Keeper | None = None
    backup: Make | None = None
    cleaner: Cleaner | None = None
    send: Send | None = None


NOTHING = Outside()
