"""Applies one custom resource as a user's manifest would be, or returns the reason for its refusal;
calls that wait at the same time share a commit of the store.

The request goes the way of every apply (daemon/receive.py): checks, predictions, consent and
money are the same, and an edit with kubectl meets the same rules.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fleetctl.apply.consent import NeedsConsent
from fleetctl.common.errors import Conflict, FleetctlError, StoreError
from fleetctl.kubernetes.connection import Object
from fleetctl.manifest import ManifestErrors
from fleetctl.manifest.cluster import files_in, truth_keys_in
from fleetctl.manifest.problems import PredictedErrors, join_sentences
from fleetctl.operator.crds.definition import GROUP
from fleetctl.operator.mirror.custom_resource import APPROVE, CustomResource, manifest_text
from fleetctl.operator.mirror.entries import MirrorEntry
from fleetctl.operator.mirror.statuses import Unaccepted
from fleetctl.specs.builtin import DEFAULT_PROVIDER

if TYPE_CHECKING:
    from fleetctl.daemon.receive import ManifestReceiver
    from fleetctl.specs.kinds.registry import Kind


# A refusal may pass without an edit: an object that the resource names is stored later. The mirror
# tries again whenever another object changed; this is the net.
REFUSED_AGAIN_S = 60.0
JOINED_MAX = 32  # resources that are applied together
AUTHORS_MAX = 10_000  # of resources; the oldest are forgotten
NOWHERE = "/nonexistent"  # relative paths begin there; manifests that name files are refused before


# A cluster's own tools for this write custom resources; a second writer beside them would fight.
ELSEWHERE = Unaccepted(
    "Unsupported",
    "in a cluster the repository is kept applied by Argo CD or Flux, and not by a Source",
    "point Argo CD or Flux at the same directory; they write custom resources, which are applied",
)

# An image has no programs but ours, and an author of a Notifier must not run one there.
NO_PROGRAMS = Unaccepted(
    "Unsupported",
    "a controller in a cluster starts no programs, so `command` would never run",
    "use a `webhook`, `slack` or `email`",
)

T = TypeVar("T")

# Lists of candidates, in a placement.
_LISTS = ("ordered", "anyOf")
# Kinds that are kept at one provider, and do no work.
_KEPT = frozenset(("Volume", "Function"))


class Applier:
    """Applies custom resources. local_means: the provider for work with provider `local`."""

    def __init__(self, receiver: ManifestReceiver, local_means: str = DEFAULT_PROVIDER) -> None:
        self._receiver = receiver
        self._local_means = local_means
        self._joined = JoinedCalls(self._send, items_max=JOINED_MAX)
        self._authors: OrderedDict[str, tuple[str, str]] = OrderedDict()

    @property
    def renames(self) -> bool:
        """Returns whether work with provider `local` runs at another one."""
        return self._local_means != DEFAULT_PROVIDER

    def rename(self, kind: Kind, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a spec with the providers that its work really gets."""
        return replace_local(kind.name, spec, self._local_means, runs=kind.runs)

    def note_author(self, key: str, digest: str, author: str) -> None:
        """Notes who requested a state of a resource from this process. An annotation would not do:
        everybody who may write the resource could name another user."""
        if author:
            self._authors[key] = digest, author
            if len(self._authors) > AUTHORS_MAX:
                self._authors.popitem(last=False)

    async def _send(
        self,
        documents: Sequence[Mapping[str, str]],
        *,
        yes: bool = False,
        author: str = "",
    ) -> None:
        request = {
            "verb": "mirror",
            "documents": list(documents),
            "withoutFiles": True,  # they are refused before
            "env": {},
            "yes": yes,
            "author": author,
            # kubectl applies in any order; the work waits and its status names the missing object
            "allowMissing": True,
        }
        await self._receiver.apply(request)

    async def apply(
        self,
        entry: MirrorEntry,
        found: Object,
        wanted: CustomResource,
    ) -> tuple[Unaccepted | None, float | None]:
        """Applies the custom resource; returns why it was refused, and after how many seconds to
        try again; None: when it changes. Raises StoreError.
        """
        kind = entry.kind
        spec = found.get("spec") or {}
        if (barrier := self.find_barrier(kind, spec)) is not None:
            return barrier, None
        here = self.rename(kind, spec)
        document = {
            "path": f"{kind.name.lower()}/{entry.at[1]}",
            "text": manifest_text(kind, {**found, "spec": here}, wanted.origin),
            "dir": NOWHERE,
        }
        try:
            digest, author = self._authors.get(entry.key, ("", ""))
            author = author if digest == wanted.origin.digest else ""
            if wanted.allows or author:
                await self._send([document], yes=wanted.allows, author=author)
            else:
                await self._joined.handle(document)
        except NeedsConsent as error:
            return _require_consent(entry, wanted, error), None
        except ManifestErrors as error:
            told = "; ".join(join_sentences(it.message, it.hint) for it in error.problems)
            again_s = REFUSED_AGAIN_S if isinstance(error, PredictedErrors) else None
            return Unaccepted("Invalid", told), again_s
        except Conflict as error:
            return Unaccepted("Conflict", str(error), error.hint), REFUSED_AGAIN_S
        except StoreError:
            raise
        except FleetctlError as error:
            return Unaccepted("Refused", str(error), error.hint), REFUSED_AGAIN_S
        return None, None

    def find_barrier(self, kind: Kind, spec: Mapping[str, Any]) -> Unaccepted | None:
        """Returns why an object cannot be of a cluster; None where it can."""
        if kind.name == "Source":
            return ELSEWHERE
        if kind.name == "Notifier" and _starts_programs(spec):
            return NO_PROGRAMS
        if named := list(files_in(kind.files, spec)):
            where, hint = named[0]
            text = f"{where} names a file, and in a cluster there is none beside a manifest"
            return Unaccepted("NamesFile", text, hint)
        if changed := list(truth_keys_in(spec)):
            return _explain_changed_keys(changed)
        return None


def _explain_changed_keys(paths: list[str]) -> Unaccepted:
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    text = (
        f"{paths[0]}{more} is what kubectl makes of a key without quotes such as `y`, `n` or `on`"
    )
    hint = (
        'put the key into quotes in the manifest, such as `"n":`, or name it otherwise;'
        " `fleetctl convert --to kubernetes` writes such keys with quotes"
    )
    return Unaccepted("Invalid", text, hint)


def _starts_programs(spec: Mapping[str, Any]) -> bool:
    sinks = spec.get("notify")
    return isinstance(sinks, list) and any("command" in it for it in sinks if isinstance(it, dict))


def _require_consent(
    entry: MirrorEntry,
    wanted: CustomResource,
    error: NeedsConsent,
) -> Unaccepted:
    within = f" -n {entry.at[0]}" if entry.at[0] else ""
    annotate = (
        f"kubectl annotate --overwrite {entry.kind.plural}.{GROUP} {entry.at[1]}{within}"
        f" {APPROVE}={wanted.origin.digest}"
    )
    return Unaccepted(
        "NeedsConsent",
        "; ".join(error.losses),
        f"`{annotate}` lets it happen; until then the state before is kept",
    )


class JoinedCalls(Generic[T]):
    """Calls of a function that handles several items at once, all or none. An item whose batch is
    refused is handled by itself, so that it learns its own error and stops no other.
    """

    def __init__(self, call: Callable[[Sequence[T]], Awaitable[object]], *, items_max: int) -> None:
        self._call = call
        self._items_max = items_max
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._working: asyncio.Task[None] | None = None

    async def handle(self, item: T) -> None:
        """Returns once the item is handled. Raises the errors of the function for this item."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())
        await done

    async def _work(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # whoever is ready in this turn of the loop joins
                batch = self._waiting[: self._items_max]
                del self._waiting[: self._items_max]
                if wanted := [it for it in batch if not it[1].done()]:  # not cancelled
                    await self._carry_out(wanted)
        finally:
            self._working = None

    async def _carry_out(self, batch: Sequence[tuple[T, asyncio.Future[None]]]) -> None:
        try:
            await self._call([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - carried over to whoever waits
            # One bad object never stops the others (P7).
            if len(batch) > 1:
                for one in batch:
                    await self._carry_out([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for _, done in batch:
            if not done.done():  # its caller was cancelled
                done.set_result(None)


def replace_local(
    kind: str,
    spec: Mapping[str, Any],
    means: str,
    *,
    runs: bool,
) -> Mapping[str, Any]:
    """Returns the spec with the provider `means` instead of `local` or of an absent provider. runs:
    objects of this kind do work.

    So a manifest that runs on a laptop is accepted as it is; the installer of the operator sets
    once where its work runs here. Called before an apply; the custom resource itself stays as it
    was written.
    """
    if means == DEFAULT_PROVIDER:
        return spec
    if kind in _KEPT:
        return {**spec, "provider": _replace_name(spec.get("provider"), means)}
    if not runs:
        return spec
    made = dict(spec)
    template = spec.get("template")
    asks = isinstance(template, Mapping) and template.get("prompt") is not None
    if spec.get("placement") is not None or not asks:  # a prompt has a provider of its own
        made["placement"] = _replace_in_placement(spec.get("placement") or {}, means)
    stages = spec.get("stages")
    if isinstance(stages, list):
        made["stages"] = [_replace_in_stage(it, means) for it in stages]
    return made


def _replace_in_stage(stage: Any, means: str) -> Any:
    if not isinstance(stage, Mapping) or not isinstance(stage.get("placement"), Mapping):
        return stage
    return {**stage, "placement": _replace_in_placement(stage["placement"], means)}


def _replace_in_placement(placement: Any, means: str) -> Any:
    if not isinstance(placement, Mapping):
        return placement  # for the model to refuse
    made = dict(placement)
    lists = [name for name in _LISTS if isinstance(made.get(name), list)]
    for name in lists:
        made[name] = _replace_candidates(made[name], means)
    if "provider" in made or not lists:
        made["provider"] = _replace_name(made.get("provider"), means)
    return made


def _replace_candidates(listed: list[Any], means: str) -> list[Any]:
    """Lists each provider once: one that is named beside `local` takes the position of the first of
    both.
    """
    made: list[Any] = []
    seen: set[object] = set()
    for it in listed:
        here = isinstance(it, Mapping) and it.get("provider") == DEFAULT_PROVIDER
        one = {**it, "provider": means} if here else it
        name = one.get("provider") if isinstance(one, Mapping) else None
        if name != means or name not in seen:
            made.append(one)
        seen.add(name)
    return made


def _replace_name(provider: Any, means: str) -> Any:
    if provider in (None, DEFAULT_PROVIDER):
        return means
    return provider
