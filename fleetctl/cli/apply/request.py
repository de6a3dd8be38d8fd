"""The request of an apply, and its reply."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.consent import agreed
from fleetctl.cli.apply.screens.outcomes import SERVER
from fleetctl.cli.command.flags import said_namespace
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.files import documents_of
from fleetctl.daemon.reach.spawn import answered

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import Policy
    from fleetctl.manifest.files.documents import Document


def documents_meant(args: Namespace, screen: Screen) -> list[Document]:
    """Of -f and -R, with --values and --set; with --prune there need be none."""
    found = documents_of(
        args.files,
        values=args.values,
        recursive=args.recursive,
        may_be_empty=getattr(args, "prune", False),
        tell=screen.hint,
    )
    if not args.set:
        return found
    from fleetctl.cli.apply.overrides import with_settings

    return with_settings(found, args.set)


def policies_meant(args: Namespace) -> list[Policy]:
    """Of `--policy`. Raises ManifestErrors and UsageError."""
    if not args.policies:
        return []
    from fleetctl.apply.policies.given import policies_in
    from fleetctl.apply.predictions.policies import wrong_in

    return policies_in(documents_of(args.policies, recursive=True), wrong_in)


def order_of(args: Namespace) -> dict[str, object]:
    """What the flags say, as a request tells it. What is not said is not in it."""
    fields = {
        "yes": args.yes,
        "rollout": args.rollout,
        "keepFinished": args.keep_finished,
        "rerun": args.rerun,
        "applyset": args.applyset,
        "prune": args.prune,
        "maxPrune": args.max_prune,
        "takeOver": args.take_over,
        "override": getattr(args, "override", False),
        "allowMissing": args.allow_missing,
        "waitForCapacity": args.wait_for_capacity,
        "dryRun": args.dry_run == SERVER,
    }
    return {**{name: value for name, value in fields.items() if value}, **said_namespace(args)}


def apply(
    state_dir: Path,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool,
) -> Mapping[str, object]:
    """The reply, after asking where something would be lost. Raises Refusal."""
    request: dict[str, object] = {
        "verb": "apply",
        "documents": [document._asdict() for document in documents],
        **order,
    }
    return agreed(partial(answered, state_dir), request, screen, piped=piped)
