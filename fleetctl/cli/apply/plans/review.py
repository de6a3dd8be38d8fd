"""`plan --diff-from REV --diff-to REV`: what a pull request would change. Called by plan.py."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, said_namespace
from fleetctl.cli.output.render import Screen
from fleetctl.common.errors import Refused, UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe

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
        help="end with 3 where one holds, such as cost>50,destroys-data,reruns>10",
    )  # fmt: skip


def wanted(args: Namespace) -> bool:
    """Raises UsageError for flags that do not go together."""
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


def reviewed(args: Namespace) -> Review:
    from fleetctl.apply.request.options import namespace_of
    from fleetctl.apply.review.compare import Asked, compare

    def settle(documents: list[Document], lenient: bool) -> list[Document]:
        return _settled(documents, args.set, lenient=lenient)

    return compare(
        Asked(
            directory=Path.cwd(),
            before=args.diff_from,
            after=args.diff_to or HEAD,
            files=tuple(args.files),
            values=tuple(args.values),
            recursive=args.recursive,
            namespace=namespace_of(said_namespace(args)),
            settle=settle,
            policies=tuple(args.policies),
            home=home() if args.live else None,
        )
    )


def show(found: Review, args: Namespace, screen: Screen) -> None:
    if args.output == "json":
        from fleetctl.apply.review.document import document

        screen.data(json.dumps(document(found), indent=2, ensure_ascii=False))
    elif args.output == "markdown":
        from fleetctl.cli.apply.plans.review_markdown import comment

        screen.data(comment(found))
    else:
        from fleetctl.cli.apply.plans.review_screen import show as show_text

        show_text(found, screen)
    for warning in found.warnings:
        screen.warn(safe(warning))


def _settled(
    documents: list[Document], settings: Sequence[str], *, lenient: bool
) -> list[Document]:
    """With `--set`. lenient: without what these documents do not know, for an older revision."""
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
    return with_settings(documents, known) if known else documents


def refuse(held: Sequence[str], denied: Sequence[str] = ()) -> None:
    """Raises Refused with what policies deny and which conditions hold."""
    from fleetctl.specs.values.exempt import EXEMPT

    found = [*denied, *(f"--fail-on {it}" for it in held)]
    if found:
        raise Refused(
            "\nerror: ".join(map(safe, found)),
            hint="nothing was changed; take the condition away where this is meant"
            if held
            else f"the annotation {EXEMPT} makes an exception for a while",
        )
