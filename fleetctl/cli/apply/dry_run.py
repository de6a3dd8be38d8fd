"""Prints the outcomes of an apply that is computed here: for `--dry-run` of apply and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fleetctl.apply.change import outcomes_of
from fleetctl.apply.consent import NeedsConsent, check_consent
from fleetctl.apply.local_proposal import propose_locally, refuse_changes
from fleetctl.cli.apply.request import CLIENT, SAID_OF_DRY_RUNS, print_outcomes, warn_of
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import find_state_dir
from fleetctl.manifest.files.documents import Document
from fleetctl.stores.read.read_only import open_readonly

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy


def dry_run(
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
    policies: Sequence[LoadedPolicy] = (),
) -> int:
    """Prints the lines that apply would print, and its questions. Starts no work."""
    state_dir = find_state_dir()
    with open_readonly(state_dir) as stored:
        found = propose_locally(state_dir, stored, documents, order, gathers=True)
        changes = found.changes
        doubts = refuse_changes(
            stored,
            found.manifests,
            changes,
            found.accounts.backends,
            order,
            found.looked,
            policies,
        )
    warnings = [*found.warnings, *doubts]
    print_outcomes(
        outcomes_of(changes), {"warnings": warnings}, screen, dry=SAID_OF_DRY_RUNS[CLIENT]
    )
    try:
        check_consent(changes, (), SystemClock().now_s())
    except NeedsConsent as error:
        warn_of(error.losses, error.hint, order, screen)
    return 0
