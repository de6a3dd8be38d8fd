"""The request of an apply, and its reply."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.consent import send_with_consent
from fleetctl.cli.apply.runs.work_flags import sweep_fields, sweep_flags_given
from fleetctl.cli.apply.screens.outcomes import SERVER
from fleetctl.cli.command.flags import request_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.files import documents_of
from fleetctl.cli.targets.sweep_files import NO_FIELDS, make_sweeps
from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.daemon.client.spawn import request_with_env

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.manifest.files.documents import Document


def collect_documents(args: Namespace, screen: Screen) -> list[Document]:
    """Returns the documents of -f and -R, with --values and --set, and with Sweeps of bare W&B
    files; with --prune there need be none."""
    found = documents_of(
        args.files,
        values=args.values,
        recursive=args.recursive,
        may_be_empty=getattr(args, "prune", False),
        tell=screen.hint,
    )
    found = with_sweeps(found, args)
    if not args.set:
        return found
    from fleetctl.cli.apply.overrides import with_settings

    return with_settings(found, args.set)


def with_sweeps(documents: list[Document], args: Namespace) -> list[Document]:
    """Returns the documents with a Sweep instead of each bare W&B file. Raises UsageError for flags
    of a W&B file that is not there.
    """
    given = sweep_flags_given(args)
    fields = sweep_fields(args) if given else NO_FIELDS
    made = make_sweeps(documents, fields)
    if given and made == documents:
        raise UsageError(
            f"{given[0]} goes with a bare W&B sweep file, and there is none here",
            hint="of other files change a field: `--set template.resources.gpu=A100`",
        )
    return made


def collect_policies(args: Namespace) -> list[LoadedPolicy]:
    """Returns the policies of `--policy`. Raises ManifestErrors and UsageError."""
    if not args.policies:
        return []
    from fleetctl.apply.policies.policy_files import policies_in
    from fleetctl.apply.predictions.policies import wrong_in

    return policies_in(documents_of(args.policies, recursive=True), wrong_in)


def order_of(args: Namespace) -> dict[str, object]:
    """Returns the flags as fields of a request, without the absent ones."""
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
    return {**{name: value for name, value in fields.items() if value}, **request_namespace(args)}


def send_apply(
    state_dir: Path,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool,
) -> Mapping[str, object]:
    """Returns the reply, after a question on losses. Raises RequestRefused."""
    values: Mapping[str, str] = {}
    if (remote := REMOTE.get()) is not None:
        from fleetctl.cli.team.inline_files import with_files_sent

        documents, values = with_files_sent(documents, remote, screen.talk)
    request: dict[str, object] = {
        "verb": "apply",
        "documents": [document._asdict() for document in documents],
        **order,
    }
    return send_with_consent(
        partial(request_with_env, state_dir, values=values), request, screen, piped=piped
    )
