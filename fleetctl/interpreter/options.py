"""Holds the options of an interpreter, and the order for a session that follows from them."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from fleetctl.common.errors import UsageError

if TYPE_CHECKING:
    from fleetctl.providers.contract.sandbox_access import SessionRequest
    from fleetctl.specs.blocks.template import GitSource, Image

PROVIDER_VARIABLE = "FLEETCTL_PROVIDER"

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class ExecutionProfile(StrEnum):
    """The features of code besides Python. ROOT_INTERLOCUTOR: SUBMIT alone; the others: all helpers
    and tools.
    """

    ROOT_INTERLOCUTOR = "ROOT_INTERLOCUTOR"
    RLM_ROOT = "RLM_ROOT"
    RLM_DELEGATE = "RLM_DELEGATE"
    MAINTENANCE = "MAINTENANCE"


class InterpreterFamily(StrEnum):
    """The two families of helpers, SUBMIT and error texts for code."""

    MODAL = "modal"
    DAYTONA = "daytona"


class ChildPlacement(StrEnum):
    """The location of a recursive query: a context of the sandbox of the code that requested it, or
    a sandbox of its own.
    """

    CONTEXT = "context"
    SANDBOX = "sandbox"


class AtDepth(StrEnum):
    """The result of a recursive query below max_depth: one question, or an error."""

    QUERY = "query"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class InterpreterOptions:
    """Checked when made: raises UsageError. provider: "" is for later, see `chosen_provider`."""

    provider: str
    manner: InterpreterFamily
    timeout_s: float
    idle_timeout_s: float | None = None
    execute_timeout_s: float | None = None
    python_version: str | None = None
    pip_packages: tuple[str, ...] | None = None
    volume: str | None = None
    mount_path: str = "/data"
    repository: tuple[str, str | None] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    native: Mapping[str, object] = field(default_factory=dict, repr=False)
    summary_threshold: int | None = None  # characters of stdout; unset = never summarised
    summary_prefix: int = 200
    llm_calls_max: int = 50  # for an interpreter and all recursive queries below it
    llm_call_timeout_s: float = 60.0
    llm_tokens_max: int | None = None  # in and out; unset = no limit, as for the next
    llm_usd_max: float | None = None
    llm_prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rlm_timeout_s: float | None = 3600.0  # of a recursive query with all below it
    depth_max: int = 2  # of recursive queries
    sandboxes_max: int = 50  # that recursive queries make, in all
    batch_concurrency: int = 4  # recursive queries per batch at once
    children: ChildPlacement = ChildPlacement.CONTEXT
    at_depth: AtDepth = AtDepth.QUERY

    def __post_init__(self) -> None:
        for name in (
            *("timeout_s", "idle_timeout_s", "execute_timeout_s"),
            *("llm_call_timeout_s", "rlm_timeout_s"),
        ):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise UsageError(
                    f"{name.removesuffix('_s')} is `{value}`; it must be seconds above 0"
                )
        for name, count, least in (
            ("max_llm_calls", self.llm_calls_max, 0),
            ("max_depth", self.depth_max, 0),
            ("max_sandboxes", self.sandboxes_max, 0),
            ("max_llm_tokens", self.llm_tokens_max, 0),
            ("max_llm_usd", self.llm_usd_max, 0),
            ("batch_concurrency", self.batch_concurrency, 1),
        ):
            if count is not None and not (least <= count < math.inf):
                raise UsageError(f"{name} is `{count}`; it must be at least {least}")
        if not self.mount_path.startswith("/"):
            raise UsageError(
                f"volume_mount_path is `{self.mount_path}`; it must be an absolute path"
            )


def chosen_provider(asked: str | None, default: str) -> str:
    """Returns the requested provider, else $FLEETCTL_PROVIDER, else the class's own."""
    return asked or os.environ.get(PROVIDER_VARIABLE) or default


def parse_choice(
    kind: type[E],
    name: str,
    value: str,
) -> E:
    """Returns the member of an enum. Raises UsageError, which lists its values."""
    try:
        return kind(value)
    except ValueError:
        words = " or ".join(f"`{one}`" for one in kind)
        raise UsageError(f"{name} is `{value}`; it must be {words}") from None


def split_secrets(
    secrets: Mapping[str, str] | Sequence[object] | None, name: str | None
) -> tuple[dict[str, str], tuple[str, ...], tuple[object, ...]]:
    """Returns (values by variable, names of secrets that the provider keeps, the provider's own
    objects)
    """
    if isinstance(secrets, Mapping):
        return dict(secrets), (name,) if name else (), ()
    given = list(secrets or ())
    names = [one for one in given if isinstance(one, str)] + ([name] if name else [])
    return {}, tuple(names), tuple(one for one in given if not isinstance(one, str))


def session_order(options: InterpreterOptions) -> SessionRequest:
    """Builds the request of a session. Raises UsageError for options that no provider could carry
    out.
    """
    from fleetctl.guest.ship.assemble import driver_source
    from fleetctl.providers.contract.sandbox_access import SessionRequest, VolumePlace

    daytona = options.manner is InterpreterFamily.DAYTONA
    place = None
    if options.volume or daytona:
        # Daytona's code finds the directory also without a volume, and loses it with the sandbox.
        place = VolumePlace(options.mount_path, options.volume)
    return SessionRequest(
        name=f"fleetctl-{uuid.uuid4().hex[:20]}",
        driver=driver_source(),
        lifetime_s=options.timeout_s,
        image=_build_image(options),
        place=place,
        repository=_build_repository(options),
        workspace=daytona,
        secrets=options.secret_names,
        native=options.native,
    )


def _build_image(options: InterpreterOptions) -> Image | None:
    if options.python_version is None and options.pip_packages is None:
        return None
    from fleetctl.specs.blocks.template import Image

    pip = tuple(options.pip_packages or ())
    return _check_model(lambda: Image(python=options.python_version, pip=pip))


def _build_repository(options: InterpreterOptions) -> GitSource | None:
    if options.repository is None:
        return None
    from fleetctl.specs.blocks.template import GitSource

    url, ref = options.repository
    return _check_model(lambda: GitSource(url=url, ref=ref))


def _check_model(make: Callable[[], T]) -> T:
    """Translates the errors of a model of specs/ into ours."""
    from pydantic import ValidationError

    try:
        return make()
    except ValidationError as error:
        first = error.errors()[0]
        what = first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{'.'.join(map(str, first['loc']))} is `{first['input']}`; {what}"
        ) from None
