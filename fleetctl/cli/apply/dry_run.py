"""`fleetctl apply --dry-run`: what an apply would answer, found out without storing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.apply.change import outcomes_of
from fleetctl.apply.consent import NeedsConsent, check
from fleetctl.cli.apply.predictions import refuse
from fleetctl.cli.apply.propose import proposed
from fleetctl.cli.apply.screens.outcomes import CLIENT, SAID_OF_DRY_RUNS, show, warn_of
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.home import home
from fleetctl.manifest.files.documents import Document
from fleetctl.stores.read.read_only import open_readonly


def dry_run(documents: Sequence[Document], order: Mapping[str, object], screen: Screen) -> int:
    """The words that apply would say, and what it would ask. Nothing runs for it."""
    state_dir = home()
    with open_readonly(state_dir) as stored:
        found = proposed(state_dir, stored, documents, order)
        changes = found.changes
        doubts = refuse(stored, found.manifests, changes, found.accounts.backends, order)
    warnings = [*found.warnings, *doubts]
    show(outcomes_of(changes), {"warnings": warnings}, screen, dry=SAID_OF_DRY_RUNS[CLIENT])
    try:
        check(changes, (), SystemClock().now_s())
    except NeedsConsent as error:
        warn_of(error.losses, error.hint, order, screen)
    return 0
