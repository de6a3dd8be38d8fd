"""Endpoint: model servers that tasks may call, with the limits, prices and keys of the calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from fleetctl.specs.values.model_urls import base_of
from fleetctl.specs.values.scalars import (
    OLD_NAME,
    Duration,
    EnvName,
    Float,
    Int,
    Name,
    NonEmptyText,
    PositiveCount,
    PositiveDuration,
    Spec,
    WhenSpec,
)

OPENAI_KEY = "OPENAI_API_KEY"
AUTHORIZATION = "Authorization"
KEY_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie")
OWN_HEADERS = (
    *("host", "content-type", "content-length", "transfer-encoding", "connection"),
    *("accept-encoding", "expect", "upgrade"),
)
OTHERS_MAX = 32  # headers or parameters; more is a mistake in the file
SERVERS_MAX = 64
SLOTS_MAX = 4096  # per server; more is a mistake in the file
# Fields that need the gateway.
DIRECT_WITHOUT = (
    *("concurrency", "limits", "retry", "cache", "prices", "max_fallback_share", "batch"),
    *("headers", "query"),
)
BATCH_ROWS_MAX = 50_000  # per batch at OpenAI
Api = Literal["openai", "ollama"]
Alias = Annotated[NonEmptyText, Field(max_length=200)]
HeaderName = Annotated[NonEmptyText, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
UsdPerMillion = Annotated[
    Float | Int,
    Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
    ),
]


class EndpointServer(Spec):
    """One model server, as this machine reaches it: exactly one of `url` and `function`."""

    url: NonEmptyText | None = Field(
        default=None,
        description="`http` or `https` URL that clients add `/chat/completions` to; a bare host has"
        " `/v1`.",
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
    def _is_one(self) -> EndpointServer:
        if (self.url is None) == (self.function is None):
            raise ValueError(
                "a server needs one of `url` and `function`, such as"
                ' `{url: "http://10.0.0.7:8000/v1"}`'
            )
        return self

    @property
    def base(self) -> str:
        """One spelling of its URL; empty of a Function's."""
        return base_of(self.url or "")


class ApiKey(Spec):
    """The servers' key: one variable of a Secret. It never enters a sandbox."""

    secret: Name = Field(description="Name of a Secret object.")
    name: EnvName = Field(
        default=OPENAI_KEY, description=f"Its variable that is the key; default `{OPENAI_KEY}`."
    )
    header: HeaderName = Field(
        default=AUTHORIZATION,
        description="Header that carries it, such as `api-key`; default `Authorization` (Bearer).",
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
        default=0.5, description="Seconds before the second try; default 0.5."
    )
    max_seconds: PositiveDuration = Field(
        default=30.0, description="Longest wait in seconds; default 30."
    )


RetryOn = Annotated[Int, Field(ge=400, le=599)] | Literal["4xx", "5xx", "connection"]
RETRY_WORDS = ("4xx", "5xx", "connection")


class CallRetry(WhenSpec):
    """The requests that are tried again: only those whose answer had not begun."""

    attempts: Annotated[PositiveCount, Field(le=100)] = Field(
        default=4, description="Tries of a request; default 4."
    )
    when: tuple[RetryOn, ...] | None = Field(
        default=None,
        description="Status codes, `5xx`, or `connection`; default 408, 429, 5xx and connection.",
    )
    on: tuple[RetryOn, ...] | None = Field(default=None, description=OLD_NAME)
    backoff: CallBackoff = Field(
        default_factory=CallBackoff, description="Waiting between tries; default 0.5 s to 30 s."
    )

    @field_validator("when", "on", mode="before")
    @classmethod
    def _are_statuses(cls, value: Any) -> Any:
        for one in value if isinstance(value, list | tuple) else ():
            known = isinstance(one, int) and 400 <= one <= 599
            if not known and one not in RETRY_WORDS:
                said = "a status code from 400 to 599, `4xx`, `5xx` or `connection`"
                raise ValueError(f"`{one}` is not {said}")
        return value


class CallCache(Spec):
    """The rule by which this machine stores answers and gives them again. They hold prompts."""

    policy: Literal["Never", "Deterministic", "Always"] = Field(
        default="Never",
        description="`Deterministic`: embeddings, temperature 0, or a seed given; default Never.",
    )
    ttl_seconds: PositiveDuration = Field(
        default=604_800.0, description="Seconds or `7d` that an answer is kept; default 7 days."
    )


class ModelPrice(Spec):
    """The price of a model's tokens, in US dollars a million."""

    input_per_million: UsdPerMillion = Field(default=0.0, description="USD for prompts; default 0.")
    output_per_million: UsdPerMillion = Field(
        default=0.0, description="USD for answers; default 0."
    )


class Batching(Spec):
    """How rows of `mode: batch` are put together for the server's own batch API."""

    max_rows: Annotated[PositiveCount, Field(le=BATCH_ROWS_MAX)] = Field(
        default=BATCH_ROWS_MAX, description="Rows of one batch at most; default 50000."
    )
    linger_seconds: Duration = Field(
        default=5.0,
        description="Seconds without a further row until a batch is sent; default 5.",
    )
    poll_seconds: PositiveDuration = Field(
        default=30.0,
        description="Seconds or `5m` between two checks of a batch at most; default 30.",
    )
    price_share: Annotated[Float | Int, Field(ge=0, le=1)] = Field(
        default=0.5, description="Share of `prices` that a row in a batch costs; default 0.5."
    )


class EndpointSpec(Spec):
    """Model servers behind one name. Tasks whose template lists it reach them without a key and
    without an open port; what they ask is limited, counted and charged.
    """

    api: Api = Field(default="openai", description="Protocol of its servers; default openai.")
    servers: tuple[EndpointServer, ...] = Field(
        min_length=1,
        max_length=SERVERS_MAX,
        description="Servers of the models, at least one.",
    )
    models: dict[Alias, NonEmptyText] = Field(
        default_factory=dict,
        max_length=100,
        description="Models: the tasks' name to the servers', the usual one first; default: any.",
    )
    api_key: ApiKey | None = Field(
        default=None, description="Key of the servers; default: they need none."
    )
    headers: dict[HeaderName, NonEmptyText] = Field(
        default_factory=dict,
        max_length=OTHERS_MAX,
        description="Sent with each request, such as `{X-Title: mine}`; no secrets; default none.",
    )
    query: dict[Alias, NonEmptyText] = Field(
        default_factory=dict,
        max_length=OTHERS_MAX,
        description="Added to each URL, such as `{api-version: 2024-10-21}`; default none.",
    )
    concurrency: Annotated[PositiveCount, Field(le=SLOTS_MAX)] | Literal["auto"] | None = Field(
        default=None,
        description="Requests at once over all tasks; `auto`: found by trying; default: all slots.",
    )
    limits: CallLimits = Field(
        default_factory=CallLimits, description="Limits of calls and tokens."
    )
    timeout_seconds: PositiveDuration = Field(
        default=60.0, description="Seconds or `2m` that one try of a request may take; default 60."
    )
    retry: CallRetry = Field(default_factory=CallRetry, description="Which calls are tried again.")
    cache: CallCache = Field(default_factory=CallCache, description="Which answers are kept.")
    prices: dict[Alias, ModelPrice] = Field(
        default_factory=dict,
        max_length=100,
        description="By the tasks' name of a model; default: unknown, and counted so, never 0.",
    )
    batch: Batching = Field(
        default_factory=Batching, description="How rows of `mode: batch` are grouped into batches."
    )
    reach: Literal["Gateway", "Direct"] = Field(
        default="Gateway",
        description="`Direct`: tasks get the URL and the key, and no call is counted; default"
        " Gateway.",
    )
    max_fallback_share: Annotated[Float | Int, Field(ge=0, le=1)] = Field(
        default=0.05,
        description="Share of a task's calls, of at least 20, that may fall back; default 0.05.",
    )

    @field_validator("headers")
    @classmethod
    def _hold_no_key(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if name.lower() in KEY_HEADERS:
                raise ValueError(
                    f"a manifest is stored and shown: give the key by `apiKey: {{header: {name}}}`"
                )
            if name.lower() in OWN_HEADERS:
                raise ValueError(f"`{name}` is of each request itself, and cannot be given")
            if not text.isprintable():
                raise ValueError(f"`{name}` must be one line of printable characters")
        return value

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
                    raise ValueError(f"with `reach: Direct` no call is seen; drop `{said}`")
            if any(server.function for server in self.servers):
                raise ValueError("with `reach: Direct` no container of a Function is started")
        names = [server.base or f"function/{server.function}" for server in self.servers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the server `{name}` is listed twice; give it more `slots`")
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """Returns the names of the Functions that serve the endpoint."""
        return tuple(it.function for it in self.servers if it.function is not None)
