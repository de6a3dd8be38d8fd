"""The interface of a provider: four verbs for runs, a few for assets, a contract that the engine
relies on, and how an attempt reaches the model endpoints of its template.

A provider never sees a plan, a store or another provider. It may raise two errors; both mean that
no work was started. The fault in an answer decides which:

- `Refused`: this template's (an image, size or GPU that does not exist). Believed when a second
    look confirms it; final for that template at that provider.
- `Unavailable(account=True)`: the account's (key, permission, suspension, spend limit, quota).
    Starts wait with the reason and its fix, and present runs go on.
- `Unavailable`: the service's or its network's; with the reason `UnknownAnswer` and the service's
    own words where the answer is not understood. A gateway's page is no answer of the service.

Anything else leaves the outcome unknown, and the engine asks again under the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding
from fleetctl.controllers.model import (
    CheckpointOrder,
    Observation,
    ProgressOrder,
    Run,
    RunGroups,
    WandbTrial,
)
from fleetctl.guest.ship.library import read_library
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.terms import Contract
from fleetctl.specs.blocks.nodes import NodeRange, nodes_of
from fleetctl.specs.blocks.template import Template

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import SessionRequest

ENDPOINT_TOKEN = "OPENAI_API_KEY"  # noqa: S105 - the name of the variable, not its value

SANDBOX_CLOSED = "SandboxClosed"
# Other work has begun under the name of this run, in a time that the store does not know: it was
# put back from a backup.
BEGUN_AS_ANOTHER = "BegunAsAnother"


@dataclass(frozen=True, slots=True)
class EndpointAccess:
    """An attempt's access to its endpoints. names: of the endpoints, the first is the usual one.
    models: the first one's model names, each with the name at its servers. base_url: of the
    gateway, `http://127.0.0.1:PORT`, as seen from this machine. token: of this attempt alone, never
    stored. max_fallback_share: the part of its calls that its helpers may replace; the smallest of
    its endpoints'.
    """

    names: tuple[str, ...]
    models: Mapping[str, str]
    base_url: str
    token: str = field(repr=False)
    max_fallback_share: float = 0.05

    def variables(self, base_url: str) -> dict[str, str]:
        """Returns the variables by which programs of an attempt find the gateway. base_url: where
        the attempt itself sees it. Clients of Ollama send no token: theirs is in the path. Without
        models no FLEETCTL_LLM_MODEL.
        """
        base = base_url.rstrip("/")
        usual = next(iter(self.models), None)
        return {
            "OPENAI_BASE_URL": f"{base}/v1",
            ENDPOINT_TOKEN: self.token,
            "OLLAMA_HOST": f"{base}/t/{self.token}",
            "FLEETCTL_LLM_URL": base,
            "FLEETCTL_LLM_MAX_FALLBACK_SHARE": f"{self.max_fallback_share:g}",
            **({"FLEETCTL_LLM_MODEL": usual} if usual is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """The server in a container of a Function with a `port`. ready: a path, or "" for a connection.
    startup_s: until it must be ready. concurrency: requests that one container takes at once.
    """

    port: int
    command: tuple[str, ...]
    ready: str
    startup_s: float
    concurrency: int


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server. key: sent in the header `x-fleetctl-key`; kept in memory alone."""

    url: str
    key: str = field(repr=False)


@runtime_checkable
class Serving(Protocol):
    """A provider whose functions may answer HTTP, in containers that come when they are asked.
    Optional: the others refuse such a function.
    """

    async def containers(self, name: str) -> int:
        """Returns how many containers of a function cost money now, from their start to their end.
        The question wakes and keeps no container. Raises Refused and Unavailable.
        """
        ...


@dataclass(frozen=True, slots=True)
class FunctionRequest:
    """The number of a function's containers. name: of its Function object; "" when the template
    itself asks for one.
    """

    name: str
    min_containers: int
    max_containers: int | None
    scaledown_s: float


@dataclass(frozen=True, slots=True)
class FunctionAsset:
    """A function that is to be ready before its first call. template: the common part of all its
    tasks, without work; the secrets as in a RunRequest. server: for a function that tasks do not
    call.
    """

    order: FunctionRequest
    template: Template
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_refs: tuple[str, ...] = ()
    server: ServerOrder | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a task gets. name: its path below the directory of the task's files; path: of its
    content on this machine, which is never written to.
    """

    name: str
    digest: str
    path: Path
    bytes: int


@dataclass(frozen=True, slots=True)
class MountedFile:
    """A file of a volume that a task gets where it is. mount: the volume's path in the sandbox, in
    its normal form; path: of the file below it.
    """

    mount: str
    path: str


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Everything that a start needs. Two requests with the same `run` are the same request."""

    run: str
    sandbox: str  # equal to `run`: a new sandbox; else the open sandbox to use
    owner: str  # our store's id; travels in the create request
    uid: str
    resource: str  # kind/name, for messages
    index: int
    attempt: int
    template: Template
    template_hash: str
    params: Mapping[str, object]
    reusable: bool  # keep the sandbox open for further tasks after this one
    secrets: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # env name -> value; never stored
    secret_refs: tuple[str, ...] = ()  # names of secrets that the provider itself keeps
    # The store's handle of the sandbox; "" before an answer of the provider was durable.
    handle: str = ""
    # The function whose containers run it; None: a sandbox does.
    function: FunctionRequest | None = None
    # The order for `wandb.init` in its program; None: no order.
    wandb: WandbTrial | None = None
    metric: str = ""  # that its kind compares, of which every value is recorded
    checkpoint: CheckpointOrder | None = None  # where it saves its progress; None: unknown
    progress: ProgressOrder | None = None  # when it counts as hung; None: never
    groups: RunGroups | None = None  # that it works with; None: it works alone
    variables: Mapping[str, str] = field(default_factory=dict)  # of this attempt alone
    endpoints: EndpointAccess | None = None  # that its programs may call; None: no endpoint
    labels: Mapping[str, str] = field(default_factory=dict)  # of its object
    # That its parameter `file` or `files` names, in that order.
    files: tuple[InputFile | MountedFile, ...] = ()
    session: SessionRequest | None = None  # of an interpreter; None: a task

    @property
    def nodes(self) -> NodeRange:
        """Machines of this attempt. All begin together or the attempt does not: the provider owns
        them, ends all when one fails, and its observations are of all together.
        """
        return nodes_of(self.template)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the variables that it has beside those of its template."""
        return (*self.secrets, *self.variables)

    @property
    def unit(self) -> str:
        """The common name of all attempts at the same work."""
        return f"{self.uid}/{self.index}"

    def arguments(self) -> list[str]:
        """The command line of its work; empty for a program of ours. Raises Refused without any."""
        if self.template.command is not None:
            return list(self.template.command)
        if self.template.script is not None:
            return ["/bin/sh", "-c", self.template.script]
        if self.template.python is None:
            raise Refused(
                "the template has no work",
                hint="give it one of `python`, `command` and `script`",
            )
        return []

    def services(self) -> list[dict[str, object]]:
        """Returns the services beside its work, as the guest reads them; see
        guest/supervision/services.
        """
        return [it.order() for it in self.template.services]

    def masked(self) -> list[str]:
        """Names of the secrets whose values are kept out of logs and journals."""
        token = [ENDPOINT_TOKEN] if self.endpoints is not None else []
        return sorted({*self.secrets, *token})

    def training(self) -> dict[str, object]:
        """The attempt's `checkpoint` and `progress` as the guest reads them, and the files that its
        programs may import for them and for its endpoints; empty without any.
        """
        fields: dict[str, object] = {}
        if self.checkpoint is not None:
            fields["checkpoint"] = {**self.checkpoint.order(), "owner": self.uid}
        if self.progress is not None:
            fields["progress"] = asdict(self.progress)
        files = read_library(
            checkpoints=bool(fields),
            stacks=self.progress is not None,
            mirror=self.checkpoint is not None and bool(self.checkpoint.mirror),
            # Of `reach: Direct` there is no access, and the same helpers.
            models=self.endpoints is not None or bool(self.template.endpoints),
        )
        if files:
            return {**fields, "library": files}
        return {}

    def followed(self) -> dict[str, object] | None:
        """The template's `metrics` as the guest reads them; see guest/metrics/followed.py."""
        asked = self.template.metrics
        if asked is None:
            return None
        return {**asked.model_dump(by_alias=True), "metric": self.metric}


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run to look at, with the store's knowledge about it."""

    run: str
    sandbox: str
    handle: str
    journal_offset: int
    uid: str


def ref_of(run: Run) -> RunRef:
    return RunRef(
        run.name,
        run.sandbox,
        run.handle,
        run.journal_offset,
        run.uid,
    )


@dataclass(frozen=True, slots=True)
class Owned:
    """A sandbox found at the provider that carries our store's tag."""

    sandbox: str
    handle: str
    created_at_s: float


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a run's output; `next_offset` is where to go on."""

    data: bytes
    next_offset: int
    eof: bool  # the run has ended and no output follows


Notify = Callable[[str], None]  # called with a run's name when something about it changed


class RunProvider(Protocol):
    """The verbs for runs. A provider is given `notify` when it is built, and calls it only with the
    run to look at.
    """

    contract: Contract

    async def start(self, request: RunRequest) -> str:
        """Begins the work of `request` at most once and returns the provider's handle.

        Idempotent by `request.run`: a second call adopts the run that the first began, whether it
        lives or has ended. With a two-phase contract, a request without a handle only makes the
        sandbox; the work begins with the next call, whose request carries the handle that this one
        returned. Raises Refused or Unavailable, both certain that no work began; Unavailable with
        the reason SANDBOX_CLOSED when the open sandbox of the run is gone and the run can never
        begin in it, or BEGUN_AS_ANOTHER when the work that began under its name is known to be
        other work.
        """
        ...

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        """Returns an observation of each run, by id. A run that is not in the answer is unknown
        now.

        `Gone` rests on an answer of the service itself to a question asked now, never on what was
        remembered: the engine believes it when it is reported twice across the visibility bound.
        """
        ...

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        """Ends the run and its sandbox: TERM, `grace_s`, then KILL. Returns once asked; `observe`
        confirms.

        Stopping a run that is gone or was never there is not an error. Never touches a sandbox
        without our tag.
        """
        ...

    async def owned(self) -> Sequence[Owned]:
        """Returns every live sandbox that carries our store's tag, for the sweep. May lag by the
        visibility bound.
        """
        ...

    def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        """Output from byte `offset`, while it runs and after."""
        ...


class Assets(Protocol):
    """Volumes, functions and scratch space: things that are not runs."""

    async def ensure_volume(self, name: str) -> None:
        """Makes the volume exist. Idempotent."""
        ...

    async def remove_volume(self, name: str) -> None:
        """Deletes the volume and all data in it; gone when this returns. Idempotent."""
        ...

    async def ensure_function(self, asset: FunctionAsset) -> ServerAddress | None:
        """Makes the function ready to be called, and keeps its containers warm. Returns the address
        of one with a server. Idempotent.
        """
        ...

    async def remove_function(self, name: str) -> None:
        """Releases the function; gone when this returns, unless runs still call it. Idempotent."""
        ...

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        """Free what the runs of a resource left behind: work directories, and logs unless kept.
        Idempotent.
        """
        ...


class Sourced(Protocol):
    def revision(
        self,
        uid: str,
        template: Template,
        template_hash: str,
    ) -> str:
        """Returns the revision of `source` as taken for the runs of this resource and template: for
        a directory that of sources.revision, for a repository its commit; "" while it is unknown.
        Never waits.
        """
        ...


class Priced(Protocol):
    def usd_per_s(self, template: Template) -> float | None:
        """Returns the USD a second of a sandbox for this template, now; None while it is unknown.
        0.0 is free.
        """
        ...

    def lacks(self, template: Template) -> str:
        """Returns a sentence why this template can never run here, as far as is known without a
        call; or "". Never waits.
        """
        ...


@runtime_checkable
class LivePrices(Protocol):
    """A provider whose accounts report their own prices. Optional: the others have dated tables."""

    @property
    def has_live_prices(self) -> bool:
        """Returns whether usd_per_s uses the account's own prices, at most a day old."""
        ...

    async def ask_prices(self) -> None:
        """Asks the account now, where there is one; prices that it does not report stay."""
        ...


# For a template that restricts its network, at a provider without that feature.
NETWORK_HINT = "place it on `modal` or `daytona`, or leave `network` out"
# For a template with settings of pods, where no candidate is a cluster.
PODS_HINT = "place it on `kubernetes`, or leave `kubernetes` out"


def no_network(provider: str, *, instead: str = "") -> Finding:
    """Returns why a template that restricts its network cannot start there."""
    message = f"provider `{provider}` does not restrict a task's network"
    return Finding(("network",), message, f"{NETWORK_HINT}{instead}")


def no_pods(provider: str) -> Finding:
    """Returns why a template with settings of pods cannot start there: without pods they would be
    left out silently.
    """
    message = f"provider `{provider}` has no pods"
    return Finding(("kubernetes",), message, PODS_HINT)


@runtime_checkable
class Foreseeing(Protocol):
    """A provider that knows some of its refusals before it is asked for a start. Optional."""

    def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        """Yields all known obstacles, at paths of the template; an empty path is about the account.
        Looks at this machine alone. account: the one that is about to be used, which may not be
        open yet. severity: LATER where it may become right by what somebody does elsewhere.
        """
        ...


@runtime_checkable
class Reachable(Protocol):
    """A provider whose service can be unreachable or reject our key. Optional, for services."""

    async def reach(self) -> None:
        """Requests a small answer from the service, which any key in use may see. Raises Refused or
        Unavailable with what keeps our calls from being served.
        """
        ...


@runtime_checkable
class Relaying(Protocol):
    """A provider whose machines do not see the gateway of model calls, and which carries them.
    Optional: the others refuse `endpoints`, or let their machines ask by themselves.
    """

    def relay(self, ref: RunRef, access: EndpointAccess) -> None:
        """Carries the calls of a living run until it is over. A run that is begun with `endpoints`
        needs no call: this is for those of an earlier controller, and for a gateway with a new
        address. Idempotent; never waits; no error for a run that is over.
        """
        ...


@runtime_checkable
class Resolving(Protocol):
    """A provider that goes on with a start or a stop when its caller waits no more."""

    def unresolved(self) -> bool:
        """Returns whether the outcome of any start or stop is still open: this process must not end
        for idleness then.
        """
        ...


class Closing(Protocol):
    async def close(self) -> None:
        """Closes connections. Runs go on."""
        ...


class Backend(RunProvider, Assets, Sourced, Priced, Closing, Protocol):
    """The interface that wiring builds for one provider name."""
