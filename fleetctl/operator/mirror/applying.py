"""One custom resource, applied as a person's manifest would be; or why not, for its condition.

Called by mirror.py. The request goes the way of every apply (daemon/receive.py): checks,
predictions, consent and money are the same, and an edit with kubectl meets the same rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.apply.consent import NeedsConsent
from fleetctl.common.errors import Conflict, FleetctlError, StoreError
from fleetctl.kubernetes.connection import Object
from fleetctl.manifest import ManifestErrors
from fleetctl.manifest.cluster import files_in
from fleetctl.manifest.problems import joined
from fleetctl.operator.crds.definition import GROUP
from fleetctl.operator.mirror.entries import Entry
from fleetctl.operator.mirror.places import placed
from fleetctl.operator.mirror.statuses import Unaccepted
from fleetctl.operator.mirror.wanted import APPROVE, Wanted, manifest_text
from fleetctl.specs.builtin import DEFAULT_PROVIDER

if TYPE_CHECKING:
    from fleetctl.daemon.receive import Receiver

# What a person need not change may be right a little later: an object that it names is there.
REFUSED_AGAIN_S = 60.0
NOWHERE = "/nonexistent"  # relative paths begin there; what names a file is refused before


# What a cluster has for this writes custom resources; a second writer beside it would fight.
ELSEWHERE = Unaccepted(
    "Unsupported",
    "in a cluster the repository is kept applied by Argo CD or Flux, and not by a Source",
    "point Argo CD or Flux at the same directory; they write custom resources, which are applied",
)

# An image has no programs but ours, and whoever may write a Notifier must not run one there.
NO_PROGRAMS = Unaccepted(
    "Unsupported",
    "a controller in a cluster starts no programs, so nobody would hear by `command`",
    "tell a `webhook`, `slack` or `email`",
)


class Applier:
    """local_means: the provider that runs what says `local`; see places.py."""

    def __init__(self, receiver: Receiver, local_means: str = DEFAULT_PROVIDER) -> None:
        self._receiver, self._local_means = receiver, local_means

    async def apply(
        self, entry: Entry, found: Object, wanted: Wanted
    ) -> tuple[Unaccepted | None, float | None]:
        """Why it was not, and after how many seconds to try again; None: when it changes. Raises
        StoreError.
        """
        kind, spec = entry.kind, found.get("spec") or {}
        if kind.name == "Source":
            return ELSEWHERE, None
        if kind.name == "Notifier" and _starts_programs(spec):
            return NO_PROGRAMS, None
        if named := list(files_in(kind.files, spec)):
            where, hint = named[0]
            text = f"{where} names a file, and in a cluster there is none beside a manifest"
            return Unaccepted("NamesFile", text, hint), None
        here = placed(kind.name, spec, self._local_means, runs=kind.runs)
        document = {
            "path": f"{kind.name.lower()}/{entry.at[1]}",
            "text": manifest_text(kind, {**found, "spec": here}, wanted.origin),
            "dir": NOWHERE,
        }
        request = {
            "verb": "mirror",
            "documents": [document],
            "env": {},
            "yes": wanted.allows,
            "allowMissing": True,  # kubectl applies in any order; the work waits and says for what
        }
        try:
            await self._receiver.apply(request)
        except NeedsConsent as error:
            return _consent(entry, wanted, error), None
        except ManifestErrors as error:
            told = "; ".join(joined(it.message, it.hint) for it in error.problems)
            return Unaccepted("Invalid", told), None
        except Conflict as error:
            return Unaccepted("Conflict", str(error), error.hint), REFUSED_AGAIN_S
        except StoreError:
            raise
        except FleetctlError as error:
            return Unaccepted("Refused", str(error), error.hint), REFUSED_AGAIN_S
        return None, None


def _starts_programs(spec: Object) -> bool:
    sinks = spec.get("notify")
    return isinstance(sinks, list) and any("command" in it for it in sinks if isinstance(it, dict))


def _consent(entry: Entry, wanted: Wanted, error: NeedsConsent) -> Unaccepted:
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
