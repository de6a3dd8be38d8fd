"""Bundles what an engine reaches beyond its store and its providers. Built by the code that wires
an engine; without a part, its work is not done, as in most tests.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.engine.kinds.backups.backups import Make
from fleetctl.engine.kinds.gitops.source_keeper import SourceKeeper
from fleetctl.engine.kinds.notices.delivery import SendNotice
from fleetctl.engine.kinds.schedules.object_maker import ObjectMaker
from fleetctl.gateway.client.gateway_client import Gateway
from fleetctl.retention.cleaner import RetentionCleaner
from fleetctl.wandb.graphql import WandbConnect


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class EngineServices:
    """wandb: connects to W&B's service, for sweeps of an account. gateway: of model endpoints.
    maker: stores what schedules request. keeper: fetches and stores the commits of Sources. backup:
    writes one. cleaner: deletes finished work on this machine's disk. send: sends to a sink of
    notices, which wait for an engine that can.
    """

    wandb: WandbConnect | None = None
    gateway: Gateway | None = None
    maker: ObjectMaker | None = None
    keeper: SourceKeeper | None = None
    backup: Make | None = None
    cleaner: RetentionCleaner | None = None
    send: SendNotice | None = None


NOTHING = EngineServices()
