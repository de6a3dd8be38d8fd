"""`fleetctl backup` and `fleetctl restore`: write the state to one file, and read it back."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_output, parse_count
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused, UsageError
from fleetctl.common.state_paths import LOCAL, find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line, format_timestamp

PAGES = {
    "backup": """\
FILE|DIR|URL [--keep N] [-o table|json]

Copy the state to one file: every object, run, result, metric and event, at one moment,
while the controller goes on. The copy is checked before it takes its name. No secret is
in it; logs, volumes and environments of provider `local` are files of their own.
In a directory it gets a name of its store and time; --keep deletes older ones of this
store, and nothing else. A URL is what fsspec reaches: s3, gs, abfs, sftp ...
`kind: Settings` does it on a schedule.

examples:
  fleetctl backup fleet.backup
  fleetctl backup /srv/backups/ --keep 14
  fleetctl backup s3://bucket/fleet --keep 14
  fleetctl backup fleet.backup -o json

exit codes:
  0 written, 1 failed (nothing is there that was not), 2 wrong usage,
  3 refused (the file is something else), 4 there is no store yet
""",
    "restore": """\
FILE|DIR|URL [--yes] [--replace]

Put back the state that `fleetctl backup` wrote; of a directory, the newest one in it.
The controller must be down. What is there is set aside, not deleted. The next
controller asks the providers what began after the backup, and takes that over or ends
it before it starts anything.

examples:
  fleetctl down; fleetctl restore fleet.backup
  fleetctl restore s3://bucket/fleet --yes
  FLEETCTL_HOME=/srv/fleet fleetctl restore fleet.backup

exit codes:
  0 put back, 1 failed (a controller runs), 2 wrong usage,
  3 refused (what came after it would be lost: --yes; another store: --replace),
  4 no such file
""",
}


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGES[verb])
    made.set_defaults(verb=verb)
    made.add_argument("file", metavar="FILE|DIR|URL", help="the backup, or a directory of backups")
    if verb == "backup":
        made.add_argument(
            "--keep", type=parse_count, metavar="N", help="of a directory, only the newest N stay"
        )
        add_output(made, "table", "json")
    else:
        made.add_argument(
            "-y",
            "--yes",
            action="store_true",
            help="do not ask before the present state is replaced",
        )
        made.add_argument(
            "--replace", action="store_true", help="put it in place of another store, too"
        )
    return made


def run(args: Namespace, screen: Screen) -> int:
    if args.verb == "backup":
        return _write_backup(args, screen)
    return _restore_backup(args, screen)


def _write_backup(args: Namespace, screen: Screen) -> int:
    from fleetctl.stores import backup, copies

    if args.keep == 0:
        raise UsageError("--keep 0 would keep no backup; at least 1")
    state_dir = find_state_dir()
    done = copies.write_copy(state_dir, args.file, now_s=SystemClock().now_s(), keep=args.keep)
    about = done.about
    if not backup.note_newest(state_dir, done.url, about):
        screen.warn(f"`{state_dir}` cannot be written: messages will not know of this backup")
    if done.remark:
        screen.warn(done.remark)
    if args.output == "json":
        facts = {"file": done.url, "bytes": done.bytes, "store": about.store_id}
        rest = {"objects": about.objects, "at": format_timestamp(about.copied_at_s)}
        screen.data(
            json.dumps({**facts, **rest, "dropped": list(done.dropped), "remark": done.remark})
        )
        return 0
    held = f"{byte_size(done.bytes)}, {count_noun(about.objects, 'object')}"
    screen.data(f"backup written: {escape_line(done.url)}, {held}")
    if done.dropped:
        screen.talk(f"{count_noun(len(done.dropped), 'older backup')} deleted")
    return 0


def _restore_backup(args: Namespace, screen: Screen) -> int:
    from fleetctl.stores import copies

    with copies.fetch_copy(find_state_dir(), args.file) as file:
        return _put_back(file, args, screen)


def _put_back(
    file: Path,
    args: Namespace,
    screen: Screen,
) -> int:
    from fleetctl.stores import backup

    place = find_state_dir()
    now_s = SystemClock().now_s()
    about = backup.read_manifest(file)
    loss = _describe_loss(place, about.copied_at_s)
    if loss and not args.yes:
        from fleetctl.cli.apply.request import confirm_losses

        if not confirm_losses([loss], screen):
            raise Refused(loss, hint="add --yes; the present state is set aside, not deleted")
    done = backup.restore_backup(place, file, now_s=now_s, replace=args.replace)
    screen.data(
        f"state of {format_timestamp(about.copied_at_s)} is back: "
        f"{count_noun(about.objects, 'object')}"
    )
    if done.aside is not None:
        screen.talk(f"the former state is in {done.aside}")
    screen.hint(
        "`fleetctl up --detach` goes on; it first asks the providers what began after the backup"
    )
    if not (place / LOCAL).is_dir():
        screen.hint(
            f"logs and volumes of provider `local` are in `{LOCAL}` of the old state directory"
        )
    return 0


def _describe_loss(state_dir: Path, copied_at_s: float) -> str:
    """Returns a sentence when a sound store is there, whose newer state is lost; otherwise
    empty."""
    from fleetctl.views.store_reading import open_reading

    try:
        with open_reading(state_dir) as reading:
            many = len(reading.views())
    except (FleetctlError, OSError):
        return ""  # a damaged store is not lost by this
    if not many:
        return ""
    return (
        f"`{state_dir}` holds {count_noun(many, 'object')}; what changed since "
        f"{format_timestamp(copied_at_s)} would be lost"
    )
