"""The request of an apply: asks for consent before running work or data is lost, sends it, and
prints the outcome of each object.

The controller or the verb names the losses.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.apply.runs.work_flags import sweep_fields, sweep_flags_given
from fleetctl.cli.command.flags import request_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.files import NO_FIELDS, documents_of, make_sweeps
from fleetctl.common.errors import UsageError
from fleetctl.common.remote import REMOTE
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.daemon.client.spawn import request_with_env
from fleetctl.views.objects import as_mapping

if TYPE_CHECKING:
    from fleetctl.apply.policies.judge import LoadedPolicy
    from fleetctl.manifest.files.documents import Document


SPARED = "with --rollout=FinishRunning running work ends first"

CLIENT = "client"
SERVER = "server"
NONE = "none"


SAID_OF_DRY_RUNS = {CLIENT: " (dry run)", SERVER: " (server dry run)", NONE: ""}


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
    from fleetctl.apply.policies.judge import policies_in
    from fleetctl.apply.predictions.predict import find_wrong

    return policies_in(documents_of(args.policies, recursive=True), find_wrong)


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
        from fleetctl.cli.team.server_plan import with_files_sent

        documents, values = with_files_sent(documents, remote, screen.talk)
    request: dict[str, object] = {
        "verb": "apply",
        "documents": [document._asdict() for document in documents],
        **order,
    }
    return send_with_consent(
        partial(request_with_env, state_dir, values=values), request, screen, piped=piped
    )


def send_with_consent(
    ask: Callable[[Mapping[str, object]], Mapping[str, object]],
    request: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool = False,
) -> Mapping[str, object]:
    """Returns the reply to a request, sent again with `yes` where the user accepts the losses.
    Raises the error of a refusal.

    ask: sends it to the controller. piped: stdin is used up by a manifest, so the user cannot
    answer.
    """
    reply = ask(request)
    if not reply.get("ok") and _accepts_losses(reply, screen, piped=piped):
        reply = ask({**request, "yes": True})
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def _accepts_losses(
    reply: Mapping[str, object],
    screen: Screen,
    *,
    piped: bool,
) -> bool:
    """Returns true where a refusal was for losses, and the user at the terminal accepts them."""
    losses = reply.get("losses")
    if not isinstance(losses, list) or piped:
        return False
    hint = str(reply.get("hint") or "")
    spares = "--rollout" in hint
    return confirm_losses(
        [str(loss) for loss in losses], screen, otherwise=SPARED if spares else ""
    )


def confirm_losses(
    losses: Sequence[str],
    screen: Screen,
    *,
    otherwise: str = "",
    of: str = "",
) -> bool:
    """Shows the losses, a way to spare them, and a question; only `y` and `yes` accept. of: the key
    of the object, where there are several. False without a terminal.
    """
    if not (screen.talk_is_terminal and sys.stdin.isatty()):
        return False
    for loss in losses:
        screen.warn(escape_line(loss))
    if otherwise:
        screen.hint(otherwise)
    screen.ask(f"delete {escape_line(of)}? [y/N] " if of else "go on? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_outcomes(
    results: Sequence[Mapping[str, object]],
    reply: Mapping[str, object],
    screen: Screen,
    *,
    dry: str = "",
) -> None:
    rows = []
    for result in results:
        message = (
            f"{escape_line(str(result.get('key', '')))} "
            f"{escape_line(str(result.get('outcome', '')))}{dry}"
        )
        rows.append([message, escape_line(str(result.get("message") or ""))])
    planned = as_mapping(reply.get("planned"))
    for result, line in zip(results, screen.table_lines((), rows), strict=True):
        screen.data(line)
        for text in cost_lines_of(planned.get(str(result.get("key")))):
            screen.data(f"  {escape_line(text)}")
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))


def cost_lines_of(planned: object) -> list[str]:
    """Returns the lines on an object's placement and cost. planned: its plan, as `plan -o json` has
    it."""
    lines = as_mapping(as_mapping(planned).get("shown")).get("lines")
    return [str(it) for it in lines] if isinstance(lines, list) else []


def warn_of(
    losses: Sequence[object],
    hint: str,
    order: Mapping[str, object],
    screen: Screen,
) -> None:
    """Warns of the losses that an apply would ask about, in a dry run."""
    for loss in losses:
        screen.warn(escape_line(str(loss)))
    if losses and not order.get("yes"):
        screen.hint(f"to apply it: {hint}")
