"""Endpoint: model servers that tasks may ask, with the limits, prices and keys of asking."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from fleetctl.specs.values.scalars import (
    Duration,
    EnvName,
    Float,
    Int,
    Name,
    NonEmptyText,
    PositiveCount,
    PositiveDuration,
    Spec,
)

OPENAI_KEY = "OPENAI_API_KEY"
SERVERS_MAX = 64
SLOTS_MAX = 4096  # of one server; more is a mistake in the file
# What only the gateway does.
DIRECT_WITHOUT = (
    *("concurrency", "limits", "retry", "cache", "prices", "max_fallback_share", "batch"),
)
BATCH_ROWS_MAX = 50_000  # of one batch at OpenAI
Api = Literal["openai", "ollama"]
Alias = Annotated[NonEmptyText, Field(max_length=200)]
UsdPerMillion = Annotated[Float | Int, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Server(Spec):
    """One model server, as this machine reaches it: exactly one of `url` and `function`."""

    url: NonEmptyText | None = Field(
        default=None, description="`http` or `https` URL, with or without `/v1`."
    )
    function: Name | None = Field(
        default=None,
        description="Function with a `port`, whose containers run only while it is asked.",
    )
    slots: Annotated[PositiveCount, Field(le=SLOTS_MAX)] | None = Field(
        default=None,
        description="Requests that it works on at once; default: 1 of Ollama, else found by trying"
        " up to 64.",
    )
    api: Api | None = Field(default=None, description="Its protocol; default: the endpoint's.")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            known = parts.scheme in ("http", "https") and bool(parts.hostname)
            known = known and (parts.port is None or parts.port > 0)
        except ValueError:
            known = False
        if not known:
            raise ValueError('it must be a URL such as "http://10.0.0.7:8000/v1"')
        if parts.username or parts.password:
            raise ValueError("it must hold no password: a manifest is stored and shown")
        if parts.query or parts.fragment:
            raise ValueError("it must end with its path: no `?` and no `#`")
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Server:
        if (self.url is None) == (self.function is None):
            raise ValueError(
                "a server needs one of `url` and `function`, such as"
                ' `{url: "http://10.0.0.7:8000/v1"}`'
            )
        return self

    @property
    def base(self) -> str:
        """Its URL without `/v1`; empty of a Function's."""
        return (self.url or "").rstrip("/").removesuffix("/v1")


class ApiKey(Spec):
    """Where the servers' key is: one variable of a Secret. It never enters a sandbox."""

    secret: Name = Field(description="Name of a Secret object.")
    name: EnvName = Field(
        default=OPENAI_KEY, description=f"Its variable that is the key; default `{OPENAI_KEY}`."
    )


class CallLimits(Spec):
    """How much may be asked. Of a task: all its attempts' calls of one run, and of the runs that
    its code begins.
    """

    calls_per_task: PositiveCount | None = Field(
        default=None, description="Calls; a list of n prompts or texts is n; default: no limit."
    )
    tokens_per_task: PositiveCount | None = Field(
        default=None, description="Tokens in and out together; default: no limit."
    )
    per_task_concurrency: PositiveCount | None = Field(
        default=None, description="Requests of one task at once; default: what is free."
    )
    requests_per_minute: PositiveCount | None = Field(
        default=None, description="Requests of all tasks in any 60 seconds; default: no limit."
    )
    tokens_per_minute: PositiveCount | None = Field(
        default=None, description="Tokens of all tasks in any 60 seconds; default: no limit."
    )


class CallBackoff(Spec):
    """How long a request waits before it is tried again; doubled each time."""

    initial_seconds: Duration = Field(
        default=0.5, description="Before the second try; default 0.5."
    )
    max_seconds: PositiveDuration = Field(default=30.0, description="At most; default 30.")


RetryOn = Annotated[Int, Field(ge=400, le=599)] | Literal["4xx", "5xx", "connection"]
RETRY_WORDS = ("4xx", "5xx", "connection")
RETRY_ON: tuple[RetryOn, ...] = (408, 429, "5xx", "connection")


class CallRetry(Spec):
    """Which requests are tried again: only such whose answer had not begun."""

    attempts: Annotated[PositiveCount, Field(le=100)] = Field(
        default=4, description="Tries of a request; default 4."
    )
    on: tuple[RetryOn, ...] = Field(
        default=RETRY_ON,
        description="Status codes, `5xx`, or `connection`; default 408, 429, 5xx and connection.",
    )
    backoff: CallBackoff = Field(
        default_factory=CallBackoff, description="Waiting between tries; default 0.5 s to 30 s."
    )

    @field_validator("on", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        for one in value if isinstance(value, list | tuple) else ():
            known = isinstance(one, int) and 400 <= one <= 599
            if not known and one not in RETRY_WORDS:
                said = "a status code from 400 to 599, `4xx`, `5xx` or `connection`"
                raise ValueError(f"`{one}` is not {said}")
        return value


class CallCache(Spec):
    """Whether answers are kept on this machine and given again. They hold prompts."""

    policy: Literal["Never", "Deterministic", "Always"] = Field(
        default="Never",
        description="`Deterministic`: embeddings, temperature 0, or a seed given; default Never.",
    )
    ttl_seconds: PositiveDuration = Field(
        default=604_800.0, description="Seconds or `7d` that an answer is kept; default 7 days."
    )


class ModelPrice(Spec):
    """What a model's tokens cost, in US dollars a million."""

    input_per_million: UsdPerMillion = Field(default=0.0, description="Of a prompt; default 0.")
    output_per_million: UsdPerMillion = Field(default=0.0, description="Of an answer; default 0.")


class Batching(Spec):
    """How rows of `mode: batch` are put together for the server's own batch API."""

    max_rows: Annotated[PositiveCount, Field(le=BATCH_ROWS_MAX)] = Field(
        default=BATCH_ROWS_MAX, description="Rows of one batch at most; default 50000."
    )
    linger_seconds: Duration = Field(
        default=5.0,
        description="A batch is sent when no row has come for so long; default 5.",
    )
    poll_seconds: PositiveDuration = Field(
        default=30.0,
        description="Seconds or `5m` between two looks at a batch at most; default 30.",
    )
    price_share: Annotated[Float | Int, Field(ge=0, le=1)] = Field(
        default=0.5, description="Of `prices`, what a row in a batch costs; default 0.5."
    )


class EndpointSpec(Spec):
    """Model servers behind one name. Tasks whose template lists it reach them without a key and
    without an open port; what they ask is limited, counted and charged.
    """

    api: Api = Field(default="openai", description="Protocol of its servers; default openai.")
    servers: tuple[Server, ...] = Field(
        min_length=1, max_length=SERVERS_MAX, description="Where it is served, at least once."
    )
    models: dict[Alias, NonEmptyText] = Field(
        default_factory=dict,
        max_length=100,
        description="What tasks call a model -> what servers do, the first is usual; default: any.",
    )
    api_key: ApiKey | None = Field(default=None, description="Their key; default: they need none.")
    concurrency: Annotated[PositiveCount, Field(le=SLOTS_MAX)] | Literal["auto"] | None = Field(
        default=None,
        description="Requests at once over all tasks; `auto`: found by trying; default: all slots.",
    )
    limits: CallLimits = Field(default_factory=CallLimits, description="How much may be asked.")
    timeout_seconds: PositiveDuration = Field(
        default=60.0, description="Seconds or `2m` that one try of a request may take; default 60."
    )
    retry: CallRetry = Field(default_factory=CallRetry, description="What is tried again.")
    cache: CallCache = Field(default_factory=CallCache, description="What answers are kept.")
    prices: dict[Alias, ModelPrice] = Field(
        default_factory=dict,
        max_length=100,
        description="By what tasks ask for; default: unknown, and counted so, never 0.",
    )
    batch: Batching = Field(
        default_factory=Batching, description="How rows of `mode: batch` are put together."
    )
    reach: Literal["Gateway", "Direct"] = Field(
        default="Gateway",
        description="`Direct`: tasks get the URL and the key, and nobody counts; default Gateway.",
    )
    max_fallback_share: Annotated[Float | Int, Field(ge=0, le=1)] = Field(
        default=0.05,
        description="Share of a task's calls, of at least 20, that may fall back; default 0.05.",
    )

    @field_validator("concurrency", mode="before")
    @classmethod
    def _is_a_number_or_auto(cls, value: Any) -> Any:
        if value not in (None, "auto") and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError("it must be a whole number, or `auto`")
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> EndpointSpec:
        if self.models:
            for name in self.prices:
                if name not in self.models:
                    known = ", ".join(f"`{it}`" for it in self.models)
                    raise ValueError(f"`prices.{name}` is of no model in `models`: {known}")
        if self.reach == "Direct":
            for name in DIRECT_WITHOUT:
                if name in self.model_fields_set:
                    said = to_camel(name)
                    raise ValueError(f"with `reach: Direct` nobody sees the calls; drop `{said}`")
            if any(server.function for server in self.servers):
                raise ValueError("with `reach: Direct` nobody starts a Function's containers")
        names = [server.base or f"function/{server.function}" for server in self.servers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the server `{name}` is listed twice; give it more `slots`")
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of those that serve it."""
        return tuple(it.function for it in self.servers if it.function is not None)
