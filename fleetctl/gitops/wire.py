"""A proposal and an error as JSON, from the process that reads to the one that keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fleetctl.common.errors import Conflict, FleetctlError, Refused, Unavailable, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.gitops.proposal import Claim, Item, Loss, Proposal
from fleetctl.manifest import ManifestErrors, Problem

_ERRORS: Mapping[str, type[FleetctlError]] = {
    it.__name__: it for it in (Conflict, FleetctlError, Refused, Unavailable, UsageError)
}


def told(proposal: Proposal) -> dict[str, Any]:
    return {"proposal": asdict(proposal)}


def failed(error: FleetctlError) -> dict[str, Any]:
    problems = []
    if isinstance(error, ManifestErrors):
        problems = [asdict(it) for it in error.problems]
    sort = next(it.__name__ for it in type(error).__mro__ if it.__name__ in _ERRORS)
    about = {"sort": sort, "message": str(error), "hint": error.hint, "problems": problems}
    return {"error": about}


def heard(reply: Mapping[str, Any]) -> Proposal:
    """Raises what the other side raised."""
    if (error := reply.get("error")) is not None:
        if error["problems"]:
            raise ManifestErrors([Problem(**it) for it in error["problems"]])
        raise _ERRORS[error["sort"]](error["message"], hint=error["hint"])
    found = reply["proposal"]
    return Proposal(
        claim=Claim(**found["claim"]),
        items=tuple(map(_item, found["items"])),
        objects=found["objects"],
        left=found["left"],
        warnings=tuple(found["warnings"]),
        policies=found["policies"],
    )


def _item(found: Mapping[str, Any]) -> Item:
    before = found["before"]
    return Item(
        outcome=found["outcome"],
        before=Resource(**before) if before is not None else None,
        after=Resource(**found["after"]),
        told=found["told"],
        losses=tuple(Loss(**it) for it in found["losses"]),
        asked_again=found["asked_again"],
        noted=found["noted"],
    )
