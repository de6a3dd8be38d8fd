"""`fleetctl apply`: hand manifests to the controller; --wait follows their objects to the end.

A thin client on purpose: parsing and validation happen in the controller.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.cli import starting
from fleetctl.cli.client import raise_refusal, results_of
from fleetctl.cli.files import documents_of
from fleetctl.cli.flags import Parser, duration_s
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.errors import UsageError
from fleetctl.home import home
from specs.kinds import KINDS

if TYPE_CHECKING:
    from fleetctl.manifest.documents import Document


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="-f FILE|DIR|- [-f ...] [--wait [--timeout TIME]] [--dry-run]",
        summary="Make the world look like these files. Applying them twice changes nothing.",
        examples=(
            "fleetctl apply -f sweep.yaml",
            "fleetctl apply -f jobs/ --wait --timeout 2h",
            "generate.py | fleetctl apply -f -",
        ),
        codes="0 applied (with --wait: all succeeded), 1 an object failed, 2 a manifest is wrong,\n"
        "  3 refused, 4 no such file, 5 conflict, 124 timed out, 130 interrupted (work goes on)",
    )
    made.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE", dest="files",
        help="a manifest, a directory of manifests, or - for stdin; may be repeated",
    )  # fmt: skip
    made.add_argument("--wait", action="store_true", help="follow the objects until they end")
    made.add_argument(
        "--timeout", type=duration_s, metavar="TIME", help="with --wait: give up after this"
    )
    made.add_argument("--dry-run", action="store_true", help="say what would change, store nothing")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.timeout is not None and not args.wait:
        raise UsageError("--timeout limits --wait, which is missing", hint="add --wait")
    documents = documents_of(args.files)
    if args.dry_run:
        from fleetctl.cli.dryrun import dry_run

        return dry_run(documents, screen)
    place = home()
    reply = _apply(place, documents)
    results = results_of(reply)
    _show(results, reply, screen)
    keys = [str(result.get("key", "")) for result in results]
    if args.wait:
        from fleetctl.cli.follow import follow_to_end

        return follow_to_end(place, keys, screen, timeout_s=args.timeout)
    if screen.talk_is_terminal and (working := _first_working(keys)):
        screen.hint(f"fleetctl get {working} -w")
    return 0


def _apply(place: Path, documents: Sequence[Document]) -> Mapping[str, object]:
    """The reply; variables of our environment are sent only when they are asked for."""
    named = [document._asdict() for document in documents]
    request: dict[str, object] = {"verb": "apply", "documents": named}
    needed = _needed(starting.request(place, request))
    if isinstance(needed, dict):
        return needed
    request["env"] = {name: os.environ[name] for name in needed if name in os.environ}
    reply = starting.request(place, request)
    if not reply.get("ok"):
        raise_refusal(reply)
    return reply


def _needed(reply: dict[str, object]) -> dict[str, object] | list[str]:
    """The reply itself when it is final, else the names of the variables that it asks for."""
    if reply.get("ok"):
        return reply
    names = reply.get("needEnv")
    if not isinstance(names, list):
        raise_refusal(reply)
    return [str(name) for name in names]


def _show(
    results: Iterable[Mapping[str, object]], reply: Mapping[str, object], screen: Screen
) -> None:
    rows = []
    for result in results:
        said = f"{safe(str(result.get('key', '')))} {safe(str(result.get('outcome', '')))}"
        rows.append([said, safe(str(result.get("message") or ""))])
    screen.table((), rows)
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(safe(str(warning)))


def _first_working(keys: Iterable[str]) -> str:
    """The first key whose kind does work."""
    working = {kind.name.lower() for kind in KINDS.values() if kind.runs}
    return next((key for key in keys if key.partition("/")[0] in working), "")
