"""`fleetctl retry` and `fleetctl rerun`: let ended tasks run again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from functools import partial

from fleetctl.cli.apply.request import send_with_consent
from fleetctl.cli.command.flags import Parser, parse_indexes
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import count_noun, escape_line
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import results_of
from fleetctl.views.kinds import parse_target


def parser(verb: str) -> Parser:
    made = _parser_of_rerun(verb) if verb == "rerun" else _parser_of_retry(verb)
    made.set_defaults(verb=verb)
    made.add_argument("object", metavar="KIND/NAME", help="whose tasks")
    return made


RERUN_PAGE = """\
KIND/NAME

Run all tasks of an object again, on purpose: finished and failed ones, and those
that have not begun, whatever the cache knows. Attempts, logs and costs are kept,
and what runs already is left alone. The source is the copy of the last apply;
`apply --rerun` copies it again.

examples:
  fleetctl rerun job/resize
  fleetctl rerun sweep/lr -n research
  fleetctl rerun tr/pretrain && fleetctl logs tr/pretrain -f

exit codes:
  0 done, 2 wrong usage, 4 no such object, 5 conflict
"""


def _parser_of_rerun(verb: str) -> Parser:
    return Parser(verb, RERUN_PAGE)


RETRY_PAGE = """\
KIND/NAME (--failed | --index 3,7-9 | --stage NAME | --from STAGE | --all)
    [--only] [--yes]

Let tasks that ended run again. Their attempts and logs are kept, failures are
counted from 0, and what runs already is left alone. Nothing comes from the cache.
With a stage go those that build on it; you are asked before, unless you say
`--from`, and `--only` leaves them as they are.

examples:
  fleetctl retry job/resize --failed
  fleetctl retry job/resize --index 3,7-9
  fleetctl retry tr/pretrain --from data
  fleetctl retry tr/pretrain --stage data --only
  fleetctl retry sweep/lr --all

exit codes:
  0 done, or nothing to do, 2 wrong usage, 3 refused (add --yes),
  4 no such object or task, 5 conflict
"""


def _parser_of_retry(verb: str) -> Parser:
    made = Parser(verb, RETRY_PAGE)
    made.add_argument("--failed", action="store_true", help="those that failed for good")
    made.add_argument("--index", type=parse_indexes, metavar="LIST", help="these tasks: 3,7-9")
    made.add_argument("--stage", metavar="NAME", help="this stage, and what builds on it")
    made.add_argument("--from", dest="since", metavar="STAGE", help="this stage and all after it")
    made.add_argument("--all", action="store_true", help="all that have run, succeeded ones too")
    made.add_argument("--only", action="store_true", help="not the stages that build on it")
    made.add_argument(
        "-y", "--yes", action="store_true", help="do not ask before other stages run again"
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(args.object, args.namespace)
    if not wanted.kind.runs:
        raise UsageError(f"{wanted.key} runs nothing, so there is nothing to {args.verb}")
    if args.verb == "rerun":
        return _send_retry({"keys": [wanted.key], "which": "rerun"}, screen)
    chosen = (args.failed, args.all, args.index is not None, bool(args.stage), bool(args.since))
    if sum(chosen) != 1:
        raise UsageError(
            "say which tasks: one of `--failed`, `--index`, `--stage`, `--from` and `--all`",
            hint=f"fleetctl retry {wanted.key} --failed",
        )
    if args.only and (args.all or args.since):
        raise UsageError("`--only` goes with `--index`, `--stage` or `--failed`")
    words = ("failed", "all", "index", "index", "from")
    which = next(word for word, given in zip(words, chosen, strict=True) if given)
    message: dict[str, object] = {"keys": [wanted.key], "which": which, "yes": args.yes}
    if args.index is not None:
        message["indexes"] = [list(pair) for pair in args.index.ranges]
    if name := args.stage or args.since:
        message["names"] = [name]
    return _send_retry({**message, **({"only": True} if args.only else {})}, screen)


def _send_retry(message: Mapping[str, object], screen: Screen) -> int:
    asked = {"verb": "retry", "request": _new_request_id(), **message}
    for result in results_of(
        send_with_consent(partial(spawn.request_or_start, find_state_dir()), asked, screen)
    ):
        screen.data(_format_result(result))
        if moved := result.get("sourceMoved"):
            screen.warn(
                f"the source has changed since the last apply ({escape_line(str(moved))});"
                " these run the copy that was taken then"
            )
            screen.hint("`fleetctl apply -f FILE` takes the source as it is now")
        if not result.get("units") and (why := _explain_none(str(message["which"]), result)):
            screen.talk(why)
    return 0


def _new_request_id() -> str:
    """Returns a name of this request, so that repeating it has no second effect."""
    import secrets

    return secrets.token_hex(8)


def _format_result(result: Mapping[str, object]) -> str:
    """`batchjob/resize: 4 tasks requeued (attempts kept)`."""
    units = result.get("units")
    live = result.get("live")
    unit = str(result.get("unit") or "task")
    count = units if isinstance(units, int) else 0
    message = f"{count_noun(count, unit)} requeued" + (" (attempts kept)" if count else "")
    left = f"; {count_noun(live, unit)} running already" if isinstance(live, int) and live else ""
    return f"{escape_line(str(result.get('key')))}: {message}{left}"


def _explain_none(which: str, result: Mapping[str, object]) -> str:
    """Returns the reason why requested tasks were not requeued."""
    unit = str(result.get("unit") or "task")
    live = result.get("live")
    if which == "failed":
        return f"no {unit} has failed for good, and none was refused"
    if which == "all":
        if live:
            return ""
        return f"no {unit} has run yet"
    if live:
        return ""
    return f"each of these {unit}s waits for its turn already"
