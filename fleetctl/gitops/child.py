"""The process that reads a commit: `python -m fleetctl.gitops.child REQUEST`, in the checkout.
Loads all manifests and finds out what they would change, over the store as a reader; prints one
line of JSON. It writes nothing but copies of directories that manifests name, and ends.

A thousand files are seconds of work, which the controller's loop must not wait for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.apply.change import Change
from fleetctl.apply.request.options import declared_in, parallelism_of, with_declared
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.gitops.proposal import Claim, Proposal, order_of, proposed, values_of
from fleetctl.gitops.wire import failed, told
from fleetctl.manifest import load, read_documents
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.stores.base import Stored
from fleetctl.stores.read.read_only import open_readonly
from fleetctl.tracking.ownership import short
from fleetctl.tracking.sources import Sources
from fleetctl.wiring.accounts import Accounts


def main(request: str) -> None:
    about = json.loads(Path(request).read_text(encoding="utf-8"))
    home, claim = Path(about["home"]), Claim(**about["claim"])
    try:
        with open_readonly(home) as stored:
            found, _ = asyncio.run(read(home, stored, claim))
            reply: dict[str, Any] = told(found)
    except FleetctlError as error:
        reply = failed(error)
    sys.stdout.write(json.dumps(reply, separators=(",", ":")) + "\n")


async def read(home: Path, stored: Stored, claim: Claim) -> tuple[Proposal, list[Change]]:
    """Of the checkout that is the current directory, so that messages name files as the repository
    does. Raises FleetctlError.
    """
    if not Path(claim.path).is_dir():
        raise Refused(
            f"there is no directory `{claim.path}` at {short(claim.commit)}",
            hint="`git.path` names one inside the repository",
        )
    documents = read_documents([claim.path], recursive=True)
    documents += values_of(claim, str(Path.cwd()))
    manifests = load(documents, Chosen(claim.within))
    accounts = Accounts(home, store_id=stored.store_id, notify=lambda _run: None)
    try:
        sources = Sources(home)
        looked = await sources.look(manifests)
        looked = sources.keep(manifests, looked)
        manifests = await sources.required(manifests, looked)
        providers = with_declared(accounts.backends, declared_in(manifests))
        options = replace(
            order_of(claim),
            parallelism=parallelism_of(providers),
            looked=looked,
            sources=sources,
        )
        return proposed(stored, manifests, claim, options, SystemClock().now_s())
    finally:
        await accounts.close()


if __name__ == "__main__":
    main(sys.argv[1])
