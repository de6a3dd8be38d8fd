"""All rules by which a manifest is refused, or doubted, before it is stored: one row each.

Text rules are applied by loader.py when a file is read, the others by apply/predictions before a
plan and an apply. A check returns findings, and their severity decides. It is imported when an
object of its kind first needs it, so that a rule may stand in any package. A new rule is a
function and a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any, NoReturn, TypeGuard, TypeVar, cast

from pydantic import BaseModel

from fleetctl.common.finding import Finding, Severity
from fleetctl.specs.blocks.common import Metadata, WorkSpec
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.settings import SettingsSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.scalars import Spec

T = TypeVar("T")

Check = Callable[..., Iterable[Finding] | AsyncIterable[Finding]]


class RuleLevel(StrEnum):
    """The thing that a rule needs beside the manifest, and so when it is applied."""

    TEXT = "text"  # nothing: the check gets (spec)
    NAME = "name"  # the name of the object: (metadata, spec), also when a file is read
    STORE = "store"  # the other objects, as an apply would leave them: (manifest, spec, world)
    PROVIDER = "provider"  # the providers where it could run: (manifest, spec, world)
    POLICY = "policy"  # the library of policies: (manifest, spec, world)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about specs of these types. check: `module:function`, below `fleetctl`. fields: it is
    about these alone, of the spec, its template or a stage; empty: about all. made: it applies to
    an object that a Schedule makes later, too.
    """

    level: RuleLevel
    specs: type[Spec] | tuple[type[Spec], ...]
    check: str
    fields: tuple[str, ...] = ()
    made: bool = False

    def load(self) -> Check:
        return _import_check(self.check)


@cache
def _import_check(where: str) -> Check:
    module, _, name = where.partition(":")
    return cast(Check, getattr(import_module(f"fleetctl.{module}"), name))


_TEXT, _NAME, _STORE = RuleLevel.TEXT, RuleLevel.NAME, RuleLevel.STORE
_PROVIDER, _POLICY = RuleLevel.PROVIDER, RuleLevel.POLICY
_SANDBOXED = (WorkSpec, FunctionSpec)
_VARIABLES = ("env", "image", "services")
_WHENS = ("notify", "retry", "placement")
_TEXTS = ("script", "command", "search", *_VARIABLES)
_LIMITS = (
    *("success_policy", "failure_policy", "backoff_limit_per_index", "max_failed_indexes"),
    *("sandbox", "trials_per_worker"),
)

RULES: tuple[Rule, ...] = (
    Rule(_NAME, Spec, "manifest.document.envelope:find_too_long"),
    Rule(_NAME, (SweepSpec, ProviderSpec, SettingsSpec), "manifest.document.envelope:not_yet"),
    Rule(_TEXT, WorkSpec, "manifest.checks.programs:find_problems", ("python",)),
    Rule(_TEXT, WorkSpec, "manifest.checks.programs:find_parameter_problems", ("python",)),
    Rule(_TEXT, WorkSpec, "manifest.checks.commands:find_problems", ("command", "services")),
    Rule(_TEXT, (*_SANDBOXED, SecretSpec), "manifest.checks.variables:find_problems"),
    Rule(_TEXT, _SANDBOXED, "manifest.checks.commands:find_overlong", _TEXTS),
    Rule(_TEXT, _SANDBOXED, "manifest.checks.sandboxes:find_mount_problems", ("volumes", "source")),
    Rule(_TEXT, BatchJobSpec, "manifest.checks.sandboxes:find_missing_volume", ("tasks.files",)),
    Rule(_TEXT, TrainingRunSpec, "manifest.checks.checkpoints:find_problems"),
    Rule(_TEXT, WorkSpec, "manifest.checks.rules:find_problems", _LIMITS),
    Rule(_TEXT, _SANDBOXED, "manifest.checks.sandboxes:find_problems", ("image", "source")),
    Rule(_TEXT, WorkSpec, "manifest.checks.sandboxes:find_bare_images", ("image",)),
    Rule(_TEXT, WorkSpec, "manifest.checks.prompts:find_problems", ("prompt", "placement")),
    Rule(_TEXT, Spec, "manifest.checks.variables:find_credentials", ("notify",)),
    Rule(_TEXT, WorkSpec, "manifest.checks.clusters:find_problems"),
    Rule(_TEXT, _SANDBOXED, "manifest.checks.variables:find_credential_doubts", _VARIABLES),
    Rule(_TEXT, WorkSpec, "manifest.checks.programs:find_unreachable_code", ("python",)),
    Rule(_TEXT, _SANDBOXED, "manifest.checks.sandboxes:find_doubts", ("image",)),
    Rule(_TEXT, SweepSpec, "manifest.checks.programs:find_doubts", ("metrics",)),
    Rule(_TEXT, WorkSpec, "manifest.checks.variables:find_doubts", ("command", "script")),
    Rule(_TEXT, Spec, "manifest.checks.clusters:find_doubts", _WHENS),
    Rule(_TEXT, SettingsSpec, "manifest.checks.rules:find_doubts"),
    Rule(_STORE, Spec, "apply.predictions.missing_objects:of_notices", made=True),
    Rule(_STORE, Spec, "apply.predictions.predict:of_source"),
    Rule(_STORE, WorkSpec, "apply.predictions.missing_objects:check_dependencies"),
    Rule(_STORE, WorkSpec, "apply.predictions.missing_objects:of_results"),
    Rule(_STORE, WorkSpec, "apply.predictions.missing_objects:of_work", made=True),
    Rule(_STORE, WorkSpec, "apply.predictions.endpoint_needs:of_work", made=True),
    Rule(_STORE, WorkSpec, "apply.predictions.targets:check_agreement", made=True),
    Rule(_PROVIDER, WorkSpec, "apply.predictions.targets:of_work", made=True),
    Rule(_STORE, FunctionSpec, "apply.predictions.missing_objects:of_function"),
    Rule(_STORE, FunctionSpec, "apply.predictions.targets:check_function_agreement"),
    Rule(_PROVIDER, FunctionSpec, "apply.predictions.targets:of_function"),
    Rule(_STORE, EndpointSpec, "apply.predictions.endpoint_needs:of_endpoint"),
    Rule(_STORE, SecretSpec, "apply.predictions.missing_objects:of_secret"),
    Rule(_POLICY, PolicySpec, "apply.predictions.predict:of_policy"),
)


def checks_for(spec: Spec, *levels: RuleLevel, made: bool = False) -> Iterator[Check]:
    """Yields the checks of these levels for a spec, in the order of the table. made: those alone
    that apply to an object that is made later.
    """
    blocks = _list_blocks(spec)
    for rule in _rules_for(type(spec), levels):
        if (rule.made or not made) and (not rule.fields or _gives_one(blocks, rule.fields)):
            yield rule.load()


@cache
def _rules_for(spec: type[Spec], levels: tuple[RuleLevel, ...]) -> Sequence[Rule]:
    return tuple(it for it in RULES if it.level in levels and issubclass(spec, it.specs))


def _list_blocks(spec: Spec) -> list[BaseModel]:
    """Returns the spec, with its template, its stages and groups, as far as they were read."""
    blocks = [spec, getattr(spec, "template", None)]
    for name in ("stages", "groups"):
        parts = getattr(spec, name, ())
        if type(parts) is tuple:
            blocks += parts
    return [it for it in blocks if _is_read(it)]


def _is_read(value: object) -> TypeGuard[BaseModel]:
    """Returns whether it is a block: one that could not be read refuses `isinstance`, too."""
    return issubclass(type(value), BaseModel)


def _gives_one(blocks: Sequence[BaseModel], fields: Sequence[str]) -> bool:
    """Returns whether a block has a value for one of these fields; `outer.inner` of a block in
    it.
    """
    for field in fields:
        outer, _, inner = field.partition(".")
        for block in blocks:
            if outer in block.model_fields_set:
                held = getattr(block, outer)
                if not inner or (_is_read(held) and inner in held.model_fields_set):
                    return True
    return False


def check_text(spec: Spec, metadata: Metadata | None = None) -> Iterator[Finding]:
    """Yields the findings of all text rules, each until it comes to a value that could not be read.
    metadata: as far as it could be read.
    """
    named = checks_for(spec, RuleLevel.NAME) if metadata is not None else ()
    for check in named:
        yield from yield_until_unread(cast(Iterable[Finding], check(metadata, spec)))
    for check in checks_for(spec, RuleLevel.TEXT):
        yield from yield_until_unread(cast(Iterable[Finding], check(spec)))


class UnreadError(Exception):
    """A check came to a value that could not be read."""


def _raise_unread(*_: Any) -> NoReturn:
    raise UnreadError


class UnreadValue:
    """A value that could not be read: any use but `is` raises UnreadError."""

    __getattribute__ = __bool__ = __iter__ = __len__ = __getitem__ = __contains__ = _raise_unread
    __eq__ = __hash__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __format__ = _raise_unread
    __int__ = __float__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _raise_unread
    )


UNREAD = UnreadValue()


@contextmanager
def stop_at_unread() -> Iterator[None]:
    """Leaves the block where it comes to a value that could not be read."""
    try:
        yield
    except (UnreadError, TypeError) as error:
        if not _has_met_unread(error):
            raise


def yield_until_unread(found: Iterable[T]) -> Iterator[T]:
    """Yields the findings of a check until it comes to a value that could not be read.

    Without `stop_at_unread`, which costs more than most checks of a valid object.
    """
    try:
        yield from found
    except (UnreadError, TypeError) as error:
        if not _has_met_unread(error):
            raise


def _has_met_unread(error: Exception) -> bool:
    """Returns whether a check met an unread value, which functions in C refuse by a TypeError."""
    return isinstance(error, UnreadError) or UnreadValue.__name__ in str(error)


def split_doubts(found: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Returns the findings that refuse, and those that do not."""
    wrong: list[Finding] = []
    doubts: list[Finding] = []
    for it in found:
        (doubts if it.severity is Severity.DOUBT else wrong).append(it)
    return wrong, doubts
