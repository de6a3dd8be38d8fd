"""Provider: one account at a provider, with its user's settings: limits, breaker, prices.

A type of another project's package brings the model of its own block; see `ProviderSpec.model_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.machines import SlurmSettings, SshSettings
from fleetctl.specs.blocks.placement import Prices, UsdPerHour
from fleetctl.specs.builtin import BUILT_IN, CLUSTER, UnusableType, plugin_from, row_of
from fleetctl.specs.values.scalars import (
    Count,
    CredentialVariable,
    Name,
    NonEmptyText,
    PositiveCount,
    Spec,
)

SpecModel = type[Spec]  # in the class below, `type` is a field
# A name of another type is valid as text; manifest/document/envelope.py finds its package.
ProviderType = Annotated[
    Name,
    WithJsonSchema({"type": "string", "maxLength": 63, "examples": list(BUILT_IN)}),
]


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


def _open_to_blocks(schema: dict[str, Any]) -> None:
    """Lets a type that is not built in have a block of its own."""
    schema["additionalProperties"] = True
    schema["if"] = {"properties": {"type": {"enum": list(BUILT_IN)}}}
    schema["then"] = {"propertyNames": {"enum": list(schema["properties"])}}


class ProviderSpec(Spec):
    """One account at a provider. Each built-in type has one without an object, under its name."""

    model_config = ConfigDict(json_schema_extra=_open_to_blocks)

    type: ProviderType | None = Field(
        default=None,
        description="Type, such as `modal` or an installed package's; default: the object's name.",
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
    def model_of(cls, data: object) -> SpecModel:
        """Returns the model of a spec with the block of its type, which another project's package
        may bring. A type that cannot be used has a block of any fields: it is refused by name.
        """
        sort = data.get("type") if isinstance(data, Mapping) else None
        if not isinstance(sort, str) or sort in BUILT_IN or sort in cls.model_fields:
            return cls
        try:
            where = plugin_from(sort).settings
        except UnusableType:
            return _with_block(sort, dict)
        if not where:
            return cls
        module, _, name = where.partition(":")
        return _with_block(sort, getattr(import_module(module), name))

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the environment variables that hold its credentials: those of its account, and
        the `variables` of the settings of another project's type.
        """
        own = self.account.variables if self.account is not None else ()
        block = getattr(self, block_field(self.type), None) if self.type is not None else None
        return (*own, *getattr(block, "variables", ()))

    @classmethod
    def unfit_fields(cls, data: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
        sort = data.get("type")
        mine = row_of(sort) if isinstance(sort, str) else None
        if mine is None:
            return frozenset()
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
        sort = row_of(self.type)
        if sort is None:
            return self  # the type is refused, whatever its account is
        if not any(sort.accounts):
            raise ValueError(f"type `{self.type}` has no accounts")
        own = given - set(sort.extras)
        if not any(own == set(way) for way in sort.accounts):
            needs = ", or ".join(" and ".join(f"`{name}`" for name in way) for way in sort.accounts)
            raise ValueError(f"an account of type `{self.type}` needs {needs}, and no other")
        return self


def block_field(sort: str) -> str:
    """Returns the attribute of a spec that holds the block of a type."""
    return sort.replace("-", "_")


@lru_cache(maxsize=64)
def _with_block(sort: str, settings: type) -> type[ProviderSpec]:
    """Returns the model with a block `sort`. settings: its model, or `dict` for any fields."""
    needed = issubclass(settings, BaseModel) and any(
        it.is_required() for it in settings.model_fields.values()
    )
    about = f"Settings of type `{sort}`."
    field = Field(... if needed else None, alias=sort, description=about)
    annotation = settings if needed else settings | None
    name = "".join(part.capitalize() for part in sort.split("-"))
    made = create_model(
        f"{name}ProviderSpec",
        __base__=ProviderSpec,
        __doc__=ProviderSpec.__doc__,
        **{block_field(sort): (annotation, field)},  # type: ignore[call-overload]
    )
    return cast(type[ProviderSpec], made)
