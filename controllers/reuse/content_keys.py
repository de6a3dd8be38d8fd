"""Decides if two units are the same work, so that one's result is the other's; or if that is not
known. Pure; called by the engine when it reads an object and when a run has succeeded.

Wrong reuse is worse than work done twice: any input that is not in the key and could change a
result makes a unit run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.controllers.history.history import History
from fleetctl.controllers.model import Run
from fleetctl.controllers.planning.kind_controller import KindController, StopNow, Unit, as_desired
from fleetctl.specs.blocks.template import WORK_FIELDS
from fleetctl.specs.content import TREE, work_of
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from fleetctl.specs.blocks.common import WorkSpec
    from fleetctl.specs.blocks.template import Template

KEY_HEX_DIGITS = 32
# Units per object that are looked up: a second of hashing on a small machine.
LOOKED_UP_MAX = 200_000
# The variable that holds a task's index; work that names it differs by its index.
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

_COMMIT = re.compile(r"[0-9a-f]{40}")


class ReuseKey(NamedTuple):
    """Equal keys are equal work."""

    template: str
    unit: str


@dataclass(frozen=True, slots=True)
class ContentFacts:
    """The inputs of a content key that are not in the template.

    whole: the template with what its Function adds; None while that is not declared. volumes: name
    -> object and its generation. revision: the content of `source.path`, or the commit of
    `source.git`; empty while unknown. namespace: where its secrets are. models: the model names of
    its endpoints.
    """

    whole: Template | None
    volumes: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    namespace: str = DEFAULT_NAMESPACE
    models: str = ""


@dataclass(frozen=True, slots=True)
class WorkContent:
    """The content that units with the same template share. key is empty where a result may not be
    used again, and `why` has the reason. by_index: units can differ by their index alone.
    """

    key: str = ""
    why: str = ""
    by_index: bool = False


@dataclass(frozen=True, slots=True)
class _ReuseCase:
    spec: WorkSpec
    facts: ContentFacts
    template: Template  # whole, or the unit's own while its Function is missing
    ordered: bool
    given: Mapping[str, object] | None  # as of its controller
    places: tuple[str, ...]  # where it may run
    handed: bool  # its units are runs of W&B's

    @property
    def stated(self) -> bool:
        return shares_results(self.spec)


Rule = Callable[[_ReuseCase], str]


def compute_content(
    spec: WorkSpec,
    controller: KindController,
    index: int,
    facts: ContentFacts,
) -> WorkContent:
    """Returns the content of a wanted unit's work, its own parameters aside."""
    own = controller.content(index)
    unit = controller.unit(index)
    placement = controller.placement(unit.template_hash if unit is not None else "")
    case = _ReuseCase(
        spec,
        facts,
        facts.whole or own,
        controller.in_order,
        controller.given,
        tuple(it.provider for it in placement.candidates),
        controller.handed is not None,
    )
    for rule in _RULES:
        if why := rule(case):
            return WorkContent(why=why)
    named = any(INDEX_VARIABLE in str(getattr(own, work)) for work in WORK_FIELDS)
    return WorkContent(_hash_value(_build_key_document(case)), by_index=named or controller.repeats)


def shares_results(spec: WorkSpec) -> bool:
    """Returns True when results of other objects, and the contents of their volumes, are as good as
    its own.
    """
    return spec.cache is not None and spec.cache.policy == "ReuseSucceeded"


def key_of(
    controller: KindController,
    shared: WorkContent,
    unit: Unit,
) -> ReuseKey | None:
    """Returns the key of a unit; None where its result may not be used again. Equal units have a
    key each, by their count.
    """
    if not shared.key:
        return None
    number = unit.index if shared.by_index else controller.equal_before(unit.index)
    told = shared.by_index or number
    return ReuseKey(shared.key, f"{unit.params_hash}/{number}" if told else unit.params_hash)


def find_hits(
    controller: KindController,
    history: History,
    shared: Callable[[Unit], WorkContent],
    known: Callable[[str], Collection[str]],
) -> dict[int, ReuseKey]:
    """Units without an attempt under the present spec whose key is known.

    known: the unit keys that have succeeded below a content key. A unit that a user asked to run
    again is not looked up.
    """
    hits: dict[int, ReuseKey] = {}
    for unit in _list_untried(controller, history):
        key = key_of(controller, shared(unit), unit)
        if key is not None and key.unit in known(key.template):
            hits[unit.index] = key
        elif controller.in_order:
            break  # later units build upon the result of this one
        elif controller.template_hash and (key is None or not known(key.template)):
            break  # they share it, and 10,000 points need not be drawn to find no result
    return hits


def _list_untried(controller: KindController, history: History) -> Iterator[Unit]:
    again = history.again()
    fresh: Iterable[Unit | None] = islice(controller.next(history), LOOKED_UP_MAX)
    if controller.in_order:
        # Its `next` yields a single unit, and a unit that waits for its next attempt holds up the
        # rest.
        due = set(again)
        taken = history.taken
        ahead = (index for index in controller.indexes() if index not in history.succeeded)
        again = [*takewhile(lambda index: index in due or index not in taken, ahead)]
        fresh = ()
    else:
        again += [it.index for it in history.live.values() if _gives_way(controller, it)]
    for unit in chain(map(controller.unit, again), fresh):
        if unit is not None:
            yield unit


def _gives_way(controller: KindController, run: Run) -> bool:
    """Returns true if it is stopped, or about to be, for another work of its unit."""
    return isinstance(as_desired(controller, run), StopNow)


def _build_key_document(case: _ReuseCase) -> object:
    template = case.template
    facts = case.facts
    work = work_of(template, facts.revision)
    work.pop("function", None)  # its additions are in the template
    # Equal names are other secrets there; the namespace alone makes no other difference.
    elsewhere = template.secrets and facts.namespace != DEFAULT_NAMESPACE
    return {
        "template": work,
        "volumes": [facts.volumes[mount.name] for mount in template.volumes],
        # Without an image the software is that of the providers.
        "places": list(case.places) if template.image is None else [],
        **({"namespace": facts.namespace} if elsewhere else {}),
        **({"params": dict(case.given)} if case.given else {}),
        **({"models": facts.models} if facts.models else {}),
    }


def _hash_value(value: object) -> str:
    return sha256(canonical_json(value).encode()).hexdigest()[:KEY_HEX_DIGITS]


# -- when not, and why; the first that speaks decides ----------------------------------------------


def _explain_policy(case: _ReuseCase) -> str:
    never = case.spec.cache is not None and case.spec.cache.policy == "Never"
    if never:
        return "cache.policy is `Never`"
    return ""


def _explain_wandb(case: _ReuseCase) -> str:
    # The run that W&B has handed out would stay there as one that never began.
    if case.handed:
        return "each run that W&B hands out is to be made"
    return ""


def _stages_leave_more(case: _ReuseCase) -> str:
    # A stage leaves checkpoints, which no result records.
    if not case.ordered or case.stated:
        return ""
    return "stages leave more than a result; state `cache.policy: ReuseSucceeded` to reuse them"


def _explain_shared_state(case: _ReuseCase) -> str:
    # Tasks that follow one another in a sandbox may build upon what earlier ones left in it.
    if case.spec.sandbox.reuse == 1 or case.stated:
        return ""
    return (
        "its tasks share the state of a sandbox; "
        "state `cache.policy: ReuseSucceeded` to reuse their results"
    )


def _explain_function(case: _ReuseCase) -> str:
    missing = case.facts.whole is None
    if missing:
        return f"function/{case.template.function} is not declared yet"
    return ""


def _explain_params(case: _ReuseCase) -> str:
    if case.given is None:
        return "its parameters are not known yet"
    return ""


def _volume_may_change(case: _ReuseCase) -> str:
    # A Volume's version does not identify its data, which may change between two tasks that read
    # it.
    if not case.template.volumes or case.stated:
        return ""
    name = case.template.volumes[0].name
    return (
        f"what is on volume/{name} can change; "
        "state `cache.policy: ReuseSucceeded` to reuse results all the same"
    )


def _explain_volume(case: _ReuseCase) -> str:
    known = case.facts.volumes
    name = next((it.name for it in case.template.volumes if it.name not in known), None)
    if name is not None:
        return f"volume/{name} is not there"
    return ""


def _explain_moving_ref(case: _ReuseCase) -> str:
    source = case.template.source
    if source is None or source.git is None or _COMMIT.fullmatch(source.git.ref or ""):
        return ""
    if _is_pinned(case):
        return ""
    message = f"`{source.git.ref}`" if source.git.ref else "the default branch"
    return f"source.git.ref is {message}, which can move; a whole commit of 40 digits cannot"


def _is_pinned(case: _ReuseCase) -> bool:
    """Returns true if all its runs use one commit, wherever the ref points by now."""
    revision = case.facts.revision
    return bool(_COMMIT.fullmatch(revision)) or revision.startswith(TREE)


def _unknown_tree(case: _ReuseCase) -> str:
    source = case.template.source
    if source is None or source.path is None:
        return ""
    if case.facts.revision:
        return ""
    return "the content of source.path is not known: it is too large to compare, or was not there"


_RULES: tuple[Rule, ...] = (
    _explain_policy,  # then the rest does not matter
    _explain_wandb,
    _stages_leave_more,
    _explain_shared_state,
    _explain_function,  # until then its environment is unknown
    _explain_params,
    _volume_may_change,
    _explain_volume,
    _explain_moving_ref,
    _unknown_tree,
)
