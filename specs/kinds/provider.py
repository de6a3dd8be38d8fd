"""Provider: one account at a provider, with its user's settings: limits, breaker, prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.machines import SlurmSettings, SshSettings
from fleetctl.specs.blocks.placement import UsdPerHour
from fleetctl.specs.blocks.prices import Prices
from fleetctl.specs.builtin import BUILT_IN, CLUSTER, SORTS
from fleetctl.specs.values.scalars import (
    Count,
    CredentialVariable,
    NonEmptyText,
    PositiveCount,
    Spec,
)

if TYPE_CHECKING:
    ProviderType = str
else:
    ProviderType = Literal[BUILT_IN]


class ProviderLimits(Spec):
    """How much may run at the provider, over all objects."""

    max_concurrent: Count | None = Field(
        default=None, description="Sandboxes at the same time; 0 starts none; default: its own."
    )
    creates_per_minute: PositiveCount | None = Field(
        default=None, description="New sandboxes in any 60 seconds; default: no limit."
    )


class Breaker(Spec):
    """A limit that stops new starts before a mistake gets expensive. Live work goes on."""

    max_spend_per_hour: UsdPerHour | None = Field(
        default=None,
        description="USD an hour that all live sandboxes together may cost; default: no limit.",
    )


class ProviderAccount(Spec):
    """The account to use, by where its credentials are; a manifest never has them."""

    profile: NonEmptyText | None = Field(
        default=None, description="Modal: a profile of `~/.modal.toml`; default: the active one."
    )
    token_id_env: CredentialVariable | None = Field(
        default=None, description="Modal: the variable that holds the token's id."
    )
    token_secret_env: CredentialVariable | None = Field(
        default=None, description="Modal: the variable that holds the token's secret."
    )
    api_key_env: CredentialVariable | None = Field(
        default=None, description="Daytona: the variable that holds the key."
    )
    api_url: NonEmptyText | None = Field(
        default=None, description="Daytona: the server; default `DAYTONA_API_URL`, else Daytona's."
    )
    target: NonEmptyText | None = Field(
        default=None, description="Daytona: the region; default: the organization's."
    )
    context: NonEmptyText | None = Field(
        default=None, description="Kubernetes: a context of the kubeconfig; default: its current."
    )
    kubeconfig: NonEmptyText | None = Field(
        default=None, description="Kubernetes: the file; default `KUBECONFIG`, else kubectl's own."
    )

    @property
    def declared(self) -> tuple[str, ...]:
        """The fields that are given, as a manifest has them."""
        return tuple(self.model_dump(by_alias=True, exclude_none=True))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables that hold its credentials."""
        found = (self.token_id_env, self.token_secret_env, self.api_key_env)
        return tuple(name for name in found if name is not None)


class ProviderSpec(Spec):
    """One account at a provider. Of each type there is one without an object, named as the type."""

    type: ProviderType | None = Field(
        default=None, description="Type of provider; default: the object's name."
    )
    account: ProviderAccount | None = Field(
        default=None, description="Account to use; default: the one that the type's own tools use."
    )
    limits: ProviderLimits = Field(
        default_factory=ProviderLimits,
        description="How much may run there; default: the provider's limits.",
    )
    breaker: Breaker = Field(
        default_factory=Breaker, description="Condition that stops new starts; default none."
    )
    prices: Prices | None = Field(
        default=None, description="Prices to count with; default: the provider's own."
    )
    kubernetes: ClusterSettings | None = Field(
        default=None, description="Kubernetes: where in the cluster, and as what; default: its own."
    )
    ssh: SshSettings | None = Field(
        default=None, description="SSH: the machines, and how they are reached; default: none."
    )
    slurm: SlurmSettings | None = Field(
        default=None,
        description="Slurm: the cluster's login, partition and shared directory. Default: none.",
    )

    @classmethod
    def unfit_fields(cls, data: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
        sort = data.get("type")
        if sort not in BUILT_IN:
            return frozenset()
        mine = SORTS[sort]
        fields = {info.alias or name for name, info in ProviderAccount.model_fields.items()}
        others = fields.difference(mine.extras, *mine.accounts)
        blocks = {(it,) for it in BUILT_IN if it != sort}
        empty = set() if any(mine.accounts) else {("account",)}
        return frozenset({*blocks, *empty, *(("account", it) for it in others)})

    @model_validator(mode="after")
    def _settings_fit_its_type(self) -> ProviderSpec:
        if self.kubernetes is not None and self.type not in (None, CLUSTER):
            raise ValueError(f"type `{self.type}` is no cluster, so leave `kubernetes` out")
        for sort, block in (("ssh", self.ssh), ("slurm", self.slurm)):
            if block is not None and self.type not in (None, sort):
                raise ValueError(f"type `{self.type}` is not `{sort}`, so leave `{sort}` out")
            if block is None and self.type == sort:
                raise ValueError(f"type `{sort}` needs a block `{sort}`, which says where it is")
        return self

    @model_validator(mode="after")
    def _prices_fit_its_nodes(self) -> ProviderSpec:
        prices = self.prices
        if prices is None or prices.node_label is None:
            return self
        if self.type not in (None, CLUSTER):
            raise ValueError(f"type `{self.type}` has no nodes, so leave `prices.nodes` out")
        selector = self.kubernetes.node_selector if self.kubernetes is not None else {}
        fixed = selector.get(prices.node_label)
        if fixed is not None and fixed not in prices.nodes and not prices.say_anything:
            listed = ", ".join(f"`{it}`" for it in prices.nodes)
            raise ValueError(
                f"`kubernetes.nodeSelector` takes nodes with `{prices.node_label}: {fixed}` alone,"
                f" and `prices.nodes` has {listed}"
            )
        return self

    @model_validator(mode="after")
    def _account_fits_its_type(self) -> ProviderSpec:
        if self.account is None:
            return self
        if self.type is None:
            raise ValueError("an `account` needs a `type` beside it")
        given = set(self.account.declared)
        sort = SORTS[self.type]
        if not any(sort.accounts):
            raise ValueError(f"type `{self.type}` has no accounts")
        own = given - set(sort.extras)
        if not any(own == set(way) for way in sort.accounts):
            needs = ", or ".join(" and ".join(f"`{name}`" for name in way) for way in sort.accounts)
            raise ValueError(f"an account of type `{self.type}` needs {needs}, and no other")
        return self
