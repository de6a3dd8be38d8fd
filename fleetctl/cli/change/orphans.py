"""`fleetctl orphans`: asks every provider for sandboxes with our tag and without a record, lists,
ends or adopts them. Needs no controller but for adoption.

The providers list first and the store is read after: a sandbox that starts meanwhile has its
record by then, and never looks like an orphan. An adoption, by which a sandbox becomes a run of an
object, is carried out by the controller.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.cli.command.flags import (
    Parser,
    add_output,
    duration_s,
    parse_namespace,
    read_namespace,
)
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line, format_age, format_timestamp
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.specs.builtin import BUILT_IN, runs_here
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.views.exec_targets import account_named, load_accounts
from fleetctl.views.kinds import parse_target
from fleetctl.views.store_reading import open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.contract.orphans import Orphan


HEADER = ("PROVIDER", "ID", "LABEL JOB", "CREATED", "OWNER", "ACTION")
FAILED = 1
REFUSED = 3


PAGE = """\
[ID ...] [--adopt [--into KIND/NAME] | --delete [--yes]] [--all-stores]
    [--older-than TIME] [--provider NAME]

List the sandboxes and functions at every provider that carry a tag of fleetctl and
that no object of this store remembers: ours without a record, and those of other
stores, which may be well remembered there; and volumes that this store has used and
no object names; and snapshots that no object needs (those that nothing has used for
a week go by themselves), and sandboxes of interpreters whose programs are not known to
live: those of other machines may be in use.
--delete ends ours, volumes only by their names. --adopt makes
sandboxes runs of the object that they were made for, or of one made for them (or
--into another): their end and results are then collected as of any run.

examples:
  fleetctl orphans
  fleetctl orphans --delete --older-than 1h --yes
  fleetctl orphans sb-7f31c --adopt --all-stores
  fleetctl orphans volume/old-data --delete

exit codes:
  0 ok, 1 a provider could not be asked or a sandbox not ended, 2 wrong usage,
  3 refused (needs --yes), or a sandbox cannot be adopted, 4 no such orphan or object
"""

_CANNOT_ASK = ("KeyMissing", "AccountNotReady")  # no credentials, or no package


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("ids", nargs="*", metavar="ID", help="only these")
    made.add_argument(
        "--delete", action="store_true", help="end them, and wait until they are gone"
    )
    made.add_argument(
        "--adopt", action="store_true", help="make them runs of objects of this store"
    )
    made.add_argument("--into", metavar="KIND/NAME", help="with --adopt: runs of this object")
    made.add_argument(
        "-n",
        "--namespace",
        type=parse_namespace,
        metavar="NS",
        help="with --into: where that object is (default: $FLEETCTL_NAMESPACE, or `default`)",
    )
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument(
        "--all-stores", action="store_true", help="also end, or adopt, those of other stores"
    )
    made.add_argument(
        "--older-than", type=duration_s, default=0.0, metavar="TIME", help="only what is older"
    )
    made.add_argument(
        "--provider",
        metavar="NAME",
        help=f"ask this one only: {', '.join(BUILT_IN)} or a Provider object",
    )
    add_output(
        made,
        "table",
        "wide",
        "name",
        "json",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.adopt and args.delete:
        raise UsageError("`--adopt` and `--delete` exclude each other")
    if (args.into or args.namespace) and not args.adopt:
        raise UsageError("`--into` and `-n` go with `--adopt`")
    if args.yes and not args.delete:
        raise UsageError("`--yes` goes with `--delete`")
    return asyncio.run(_handle_orphans(args, screen, find_state_dir()))


async def _handle_orphans(
    args: Namespace,
    screen: Screen,
    state_dir: Path,
) -> int:
    asked = (
        [account_named(args.provider, state_dir)] if args.provider else _list_accounts(state_dir)
    )
    orphans, complete = await orphans_of(asked, state_dir, screen, named=args.provider is not None)
    found = _filter_orphans(orphans_among(orphans, state_dir), args)
    if args.adopt and not args.ids:
        # a snapshot runs no process
        found = [one for one in found if one.orphan.kind != "snapshot"]
    if args.delete or args.adopt:
        # Data is deleted only when the user has named its volume.
        named = [one for one in found if args.ids or one.orphan.kind != "volume"]
        kept = len(found) - len(named)
        if kept:
            screen.talk(f"{count_noun(kept, 'volume')} left alone: name those whose data may go")
        found = named
        chosen = [one for one in found if one.ours or args.all_stores]
        if len(chosen) < len(found):
            left = [one for one in found if one not in chosen]
            screen.talk(f"{_describe_orphans(left)} of other stores left alone (--all-stores)")
        if args.adopt:
            into = (
                parse_target(args.into, args.namespace or read_namespace()).key if args.into else ""
            )
            code = await asyncio.to_thread(
                adopt_orphans,
                chosen,
                into,
                screen,
                state_dir,
            )
        else:
            code = await _delete_orphans(chosen, args, screen, state_dir)
        return max(code, int(not complete))
    if found or complete or args.output != "table":
        _print_orphans(found, args.output, screen)
    else:
        screen.talk("no orphans where a provider answered; others are not known")
    return int(not complete)


def _filter_orphans(found: Sequence[FoundOrphan], args: Namespace) -> list[FoundOrphan]:
    """Returns the orphans that the ids and the age select. Raises NotFound for an id that is not an
    orphan.
    """
    missing = sorted(set(args.ids) - {one.id for one in found})
    if missing:
        raise NotFound(
            f"there is no orphan `{escape_line(missing[0])}`", hint="`fleetctl orphans` lists them"
        )
    old_at_s = SystemClock().now_s() - args.older_than
    return [
        one
        for one in found
        if (not args.ids or one.id in args.ids) and one.orphan.created_at_s <= old_at_s
    ]


async def _delete_orphans(
    found: Sequence[FoundOrphan],
    args: Namespace,
    screen: Screen,
    state_dir: Path,
) -> int:
    if not found:
        screen.talk("no orphans to delete")
        return 0
    if not args.yes and not _confirm_deletion(found, screen):
        return REFUSED
    from fleetctl.wiring.account_registry import orphans_of

    failed = False
    for provider in dict.fromkeys(one.orphan.provider for one in found):
        orphans = orphans_of(account_named(provider, state_dir), state_dir)
        try:
            for one in (one for one in found if one.orphan.provider == provider):
                failed |= not await _end_orphan(one, orphans.remove, screen)
        finally:
            await orphans.close()
    if failed:
        return FAILED
    return 0


async def _end_orphan(
    listed: FoundOrphan,
    remove: Callable[[Orphan], Awaitable[None]],
    screen: Screen,
) -> bool:
    try:
        await remove(listed.orphan)
    except FleetctlError as error:
        screen.report(error)
        return False
    screen.data(f"{listed.shown} deleted")
    return True


def _confirm_deletion(found: Sequence[FoundOrphan], screen: Screen) -> bool:
    """Returns the user's answer. Raises Refused without a terminal."""
    others = sum(not one.ours for one in found)
    what = _describe_orphans(found)
    if not (sys.stdin.isatty() and screen.talk_is_terminal):
        raise Refused(
            f"{what} would be ended, with all that is there, and there is no terminal to ask on",
            hint="add --yes",
        )
    _print_orphans(found, "table", screen)
    warning = f", {others} of other stores" if others else ""
    screen.talk(f"End {what}{warning}, with all that is there? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _describe_orphans(found: Sequence[FoundOrphan]) -> str:
    """Returns `2 sandboxes and the data of volume/a`."""
    data = [escape_line(one.id) for one in found if one.orphan.kind == "volume"]
    boxes = [one for one in found if one.orphan.kind == "sandbox"]
    functions = [one for one in found if one.orphan.kind == "function"]
    images = [one for one in found if one.orphan.kind == "snapshot"]
    parts = [_count_sandboxes(len(boxes))] if boxes else []
    parts += [count_noun(len(images), "snapshot")] if images else []
    parts += [count_noun(len(functions), "function")] if functions else []
    parts += [f"the data of {', '.join(data)}"] if data else []
    return " and ".join(parts)


def _count_sandboxes(count: int) -> str:
    if count == 1:
        return "1 sandbox"
    return f"{count} sandboxes"


def _print_orphans(
    found: Sequence[FoundOrphan],
    output: str,
    screen: Screen,
) -> None:
    now_s = SystemClock().now_s()
    wide = output == "wide"
    header = (*HEADER, "RUN", "PARENT", "STORE") if wide else HEADER
    written = OutputRows(
        table=lambda: (header, (_build_row(one, now_s, wide=wide) for one in found)),
        documents=lambda: map(_build_document, found),
        names=lambda: (one.shown for one in found),
    )
    if not write_rows(written, output, screen):
        screen.talk("no orphans")


def _build_row(
    listed: FoundOrphan,
    now_s: float,
    *,
    wide: bool,
) -> list[str]:
    orphan = listed.orphan
    index = f"/{orphan.index}" if orphan.index else ""
    cells = [
        orphan.provider,
        listed.id,
        f"{orphan.job}{index}" if orphan.job else "-",
        f"{format_age(now_s - orphan.created_at_s)} ago" if orphan.created_at_s else "-",
        "this store" if listed.ours else "another store",
        _describe_action(listed),
    ]
    return [
        escape_line(cell)
        for cell in (*cells, *((orphan.run, orphan.parent or "-", orphan.store) if wide else ()))
    ]


def _describe_action(listed: FoundOrphan) -> str:
    if listed.orphan.kind == "volume":
        return "none; its data goes when it is named: --delete"
    made = listed.orphan.kind in ("function", "snapshot") or listed.orphan.store == "interpreters"
    what = "--delete" if made else "--adopt or --delete"
    if listed.ours:
        return what
    return f"{what}, with --all-stores"


def _build_document(listed: FoundOrphan) -> dict[str, object]:
    orphan = listed.orphan
    created = format_timestamp(orphan.created_at_s) if orphan.created_at_s else None
    return {
        "kind": orphan.kind,
        "provider": orphan.provider,
        "id": listed.id,
        "run": orphan.run,
        "job": orphan.job or None,
        "index": int(orphan.index) if orphan.index.isdigit() else None,
        "createdAt": created,
        "parent": orphan.parent or None,
        "store": orphan.store,
        "ours": listed.ours,
    }


class FoundOrphan(NamedTuple):
    """An orphan. ours: it carries the tag of this store, which does not know it."""

    orphan: Orphan
    ours: bool

    @property
    def id(self) -> str:
        """Returns the name for the user. On this machine a handle is of a supervisor of several
        sandboxes."""
        orphan = self.orphan
        if orphan.kind != "sandbox":
            return f"{orphan.kind}/{orphan.handle}"
        if runs_here(orphan.provider):
            return orphan.run
        return orphan.handle

    @property
    def shown(self) -> str:
        return escape_line(f"{self.orphan.provider}/{self.id}")


async def orphans_of(
    asked: Sequence[Account],
    state_dir: Path,
    screen: Screen,
    *,
    named: bool,
) -> tuple[list[Orphan], bool]:
    """Returns all that they list, and true where all responded. One without credentials has no
    sandbox."""
    reply = await asyncio.gather(*(_query_account(account, state_dir) for account in asked))
    found: list[Orphan] = []
    complete = True
    for account, answer in zip(asked, reply, strict=True):
        if isinstance(answer, Refused):
            if named:
                raise answer
            screen.talk(f"{account.name}: not asked: {escape_line(str(answer))}")
        elif (
            isinstance(answer, Unavailable) and not named and _is_unused(account, answer, state_dir)
        ):
            screen.talk(f"{account.name}: not asked: {escape_line(str(answer))}")
        elif isinstance(answer, Unavailable):
            screen.error(str(answer), hint=answer.hint)
            complete = False
        else:
            found += answer
    return found, complete


def _is_unused(
    account: Account,
    answer: Unavailable,
    state_dir: Path,
) -> bool:
    """Returns true for an account that cannot be queried from here and was never used by this
    store: no reply is missing. Where it was used, an unknown list is reported as an error.
    """
    return answer.reason in _CANNOT_ASK and not account.directory(state_dir).exists()


async def _query_account(
    account: Account, state_dir: Path
) -> Sequence[Orphan] | Refused | Unavailable:
    from fleetctl.wiring.account_registry import orphans_of

    orphans = orphans_of(account, state_dir)
    try:
        return await orphans.find_all()
    except (Refused, Unavailable) as error:
        return error
    finally:
        await orphans.close()


def _list_accounts(state_dir: Path) -> list[Account]:
    with open_reading(state_dir) as reading:
        return list(load_accounts(reading).values())


def orphans_among(orphans: Sequence[Orphan], state_dir: Path) -> list[FoundOrphan]:
    """Returns those that the store does not remember, the newest last."""
    from fleetctl.providers.contract.orphans import INTERPRETERS
    from fleetctl.providers.remote.sandboxes.sandbox_names import tag_of
    from fleetctl.stores.interpreters import InterpreterRuns
    from fleetctl.stores.read.reader import Reader

    with Reader(state_dir) as reader:
        known = {text for row in reader.held_sandboxes() for text in row if text}
        tag = tag_of(reader.store_id()) if reader.store_id() else ""
        objects = list(reader.object_keys())
    assets = {(kind, asset_name(name, namespace)) for _, kind, name, namespace in objects}
    users = {f"job-{uid}" for uid, *_ in objects}
    users |= {f"function-{name}" for kind, name in assets if kind == "Function"}
    living = InterpreterRuns(state_dir).living()

    found = []
    for orphan in sorted(orphans, key=lambda one: one.created_at_s):
        ours = bool(tag) and orphan.store == tag
        if orphan.kind == "volume":
            if ("Volume", orphan.handle) not in assets:
                found.append(FoundOrphan(orphan, ours=True))
            continue
        if orphan.kind in ("function", "snapshot") and users & set(orphan.users):
            continue
        if orphan.kind == "snapshot":
            found.append(FoundOrphan(orphan, ours))
            continue
        if orphan.store == INTERPRETERS and orphan.run in living:
            continue  # made by a program of this machine that lives

        # A supervisor's handle is that of all its sandboxes; on this machine the name alone
        # identifies one.
        handle = "" if runs_here(orphan.provider) else orphan.handle
        if not ours or not {orphan.run, handle} & known:
            found.append(FoundOrphan(orphan, ours))
    return found


_NOT_ADOPTED = {
    "volume": ("nothing of it runs", "declare it: `kind: Volume` with this name"),
    "helper": ("it shows a volume to a command", "it ends by itself after that"),
    "function": ("no object of this store calls it", "apply what calls it, and it is used again"),
}


def adopt_orphans(
    found: Sequence[FoundOrphan],
    into: str,
    screen: Screen,
    state_dir: Path,
) -> int:
    """Returns the exit code. Prints a reason for each that cannot be adopted."""
    if not found:
        screen.talk("no orphans to adopt")
        return 0
    refused = False
    for one in found:
        if (sort := _orphan_type(one)) in _NOT_ADOPTED:
            why, hint = _NOT_ADOPTED[sort]
            screen.error(f"{one.shown} cannot be adopted: {why}", hint=hint)
            refused = True
    boxes = [one for one in found if _orphan_type(one) not in _NOT_ADOPTED]
    message = {
        "verb": "adopt",
        "sandboxes": [_describe_sandbox(one) for one in boxes],
        "into": into,
    }
    by_run = {one.orphan.run: one for one in boxes}
    for result in results_of(spawn.require_reply(state_dir, message)) if boxes else ():
        refused |= not _report_adoption(by_run[str(result.get("run"))], result, screen)
    if refused:
        return REFUSED
    return 0


def _orphan_type(listed: FoundOrphan) -> str:
    """Returns its kind; `helper` for a sandbox that was made for no object that runs."""
    orphan = listed.orphan
    if orphan.job.startswith("volume/"):
        return "helper"
    return orphan.kind


def _describe_sandbox(listed: FoundOrphan) -> dict[str, object]:
    orphan = listed.orphan
    return {
        "provider": orphan.provider,
        "id": orphan.handle,
        "run": orphan.run,
        "job": orphan.job,
        "index": orphan.index,
        "uid": orphan.uid,
        "work": orphan.work,
        "store": orphan.store,
        "createdAt": orphan.created_at_s,
    }


def _report_adoption(
    listed: FoundOrphan,
    result: Mapping[str, object],
    screen: Screen,
) -> bool:
    why = str(result.get("why") or "")
    hint = str(result.get("hint") or "")
    if why:
        screen.error(f"{listed.shown} cannot be adopted: {escape_line(why)}", hint=hint)
        return False
    made = ", which was made for it" if result.get("made") else ""
    key = escape_line(str(result.get("key")))
    screen.data(f"{listed.shown} adopted: index {result.get('index')} of {key}{made}")
    return True
