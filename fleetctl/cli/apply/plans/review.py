"""`plan --diff-from REV --diff-to REV`: shows the changes of a pull request. Called by plan.py."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, request_namespace
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line

if TYPE_CHECKING:
    from fleetctl.apply.review.review import Review
    from fleetctl.manifest.files.documents import Document

HEAD = "HEAD"


def add_review(parser: Parser) -> None:
    parser.add_argument(
        "--diff-from", default="", metavar="REV",
        help="compare two revisions of this git repository, from where REV was left",
    )  # fmt: skip
    parser.add_argument(
        "--diff-to", default="", metavar="REV", help="... to this one (default HEAD)"
    )
    parser.add_argument(
        "--live", action="store_true",
        help="with --diff-from: also what runs here now, and what is left of budgets",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="CONDITIONS",
        help="exit with code 3 where one holds, such as cost>50,destroys-data,reruns>10",
    )  # fmt: skip


def wants_review(args: Namespace) -> bool:
    """Returns true for a review. Raises UsageError for flags that do not go together."""
    if not args.diff_from:
        if args.diff_to or args.live:
            flag = "--diff-to" if args.diff_to else "--live"
            raise UsageError(f"{flag} needs --diff-from", hint="for instance --diff-from main")
        return False
    beside = {"--out": args.out, "--prune": args.prune, "--applyset": args.applyset}
    for flag, value in beside.items():
        if value:
            raise UsageError(
                f"{flag} and --diff-from do not go together",
                hint="two revisions are compared; what is stored here is left alone",
            )
    return True


def build_review(args: Namespace) -> Review:
    from fleetctl.apply.request.options import namespace_of
    from fleetctl.apply.review.compare import ReviewRequest, compare_revisions

    def settle(documents: list[Document], lenient: bool) -> list[Document]:
        return _apply_settings(documents, args.set, lenient=lenient)

    return compare_revisions(
        ReviewRequest(
            directory=Path.cwd(),
            before=args.diff_from,
            after=args.diff_to or HEAD,
            files=tuple(args.files),
            values=tuple(args.values),
            recursive=args.recursive,
            namespace=namespace_of(request_namespace(args)),
            settle=settle,
            policies=tuple(args.policies),
            home=find_state_dir() if args.live else None,
        )
    )


def show_review(
    found: Review,
    args: Namespace,
    screen: Screen,
) -> None:
    if args.output == "json":
        from fleetctl.apply.review.document import render_review

        screen.data(json.dumps(render_review(found), indent=2, ensure_ascii=False))
    elif args.output == "markdown":
        from fleetctl.cli.apply.plans.review_markdown import render_review_comment

        screen.data(render_review_comment(found))
    else:
        from fleetctl.cli.apply.plans.review_screen import print_review as show_text

        show_text(found, screen)
    for warning in found.warnings:
        screen.warn(escape_line(warning))


def _apply_settings(
    documents: list[Document],
    settings: Sequence[str],
    *,
    lenient: bool,
) -> list[Document]:
    """Applies `--set`. lenient: without names that these documents do not know, for an older
    revision."""
    if not settings or not documents:
        return documents
    from fleetctl.cli.apply.overrides import with_settings

    if not lenient:
        return with_settings(documents, settings)
    known = []
    for setting in settings:
        try:
            with_settings(documents, [setting])
        except UsageError:
            continue
        known.append(setting)
    if known:
        return with_settings(documents, known)
    return documents


def refuse_review(held: Sequence[str], denied: Sequence[str] = ()) -> None:
    """Raises Refused with the denials of policies and the conditions that are met."""
    from fleetctl.specs.values.exempt import EXEMPT

    found = [*denied, *(f"--fail-on {it}" for it in held)]
    if found:
        raise Refused(
            "\nerror: ".join(map(escape_line, found)),
            hint="nothing was changed; remove the condition where this is meant"
            if held
            else f"the annotation {EXEMPT} makes an exception for a while",
        )
