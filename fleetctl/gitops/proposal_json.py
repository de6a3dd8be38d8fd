"""A proposal and an error as JSON, from the process that reads to the one that keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fleetctl.common.errors import Conflict, FleetctlError, Refused, Unavailable, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.gitops.proposal import CommitProposal, ProposalLoss, ProposedObject, SourceClaim
from fleetctl.manifest import ManifestErrors, ManifestProblem

_ERRORS: Mapping[str, type[FleetctlError]] = {
    it.__name__: it for it in (Conflict, FleetctlError, Refused, Unavailable, UsageError)
}


def dump_proposal(proposal: CommitProposal) -> dict[str, Any]:
    return {"proposal": asdict(proposal)}


def dump_error(error: FleetctlError) -> dict[str, Any]:
    problems = []
    if isinstance(error, ManifestErrors):
        problems = [asdict(it) for it in error.problems]
    sort = next(it.__name__ for it in type(error).__mro__ if it.__name__ in _ERRORS)
    about = {"sort": sort, "message": str(error), "hint": error.hint, "problems": problems}
    return {"error": about}


def load_proposal(reply: Mapping[str, Any]) -> CommitProposal:
    """Returns the proposal of a reply. Raises the error that the child raised."""
    if (error := reply.get("error")) is not None:
        if error["problems"]:
            raise ManifestErrors([ManifestProblem.of_document(it) for it in error["problems"]])
        raise _ERRORS[error["sort"]](error["message"], hint=error["hint"])
    found = reply["proposal"]
    return CommitProposal(
        claim=SourceClaim(**found["claim"]),
        items=tuple(map(_load_item, found["items"])),
        objects=found["objects"],
        left=found["left"],
        warnings=tuple(found["warnings"]),
        policies=found["policies"],
    )


def _load_item(found: Mapping[str, Any]) -> ProposedObject:
    before = found["before"]
    return ProposedObject(
        outcome=found["outcome"],
        before=Resource(**before) if before is not None else None,
        after=Resource(**found["after"]),
        told=found["told"],
        losses=tuple(ProposalLoss(**it) for it in found["losses"]),
        asked_again=found["asked_again"],
        noted=found["noted"],
    )
