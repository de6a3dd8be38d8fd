"""`fleetctl backup` and `fleetctl restore`: the state in one file, and back."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.render import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, Refused
from fleetctl.common.home import LOCAL, home
from fleetctl.common.text import byte_size, plural, timestamp

PAGES = {
    "backup": """\
FILE [-o table|json]

Copy the state to one file: every object, run, result, metric and event, at one moment,
while the controller goes on. The copy is checked before it takes its name. No secret is
in it; logs, volumes and environments of provider `local` are files of their own.

examples:
  fleetctl backup fleet.backup
  fleetctl backup /srv/backups/$(date +%F).backup
  fleetctl backup fleet.backup -o json

exit codes:
  0 written, 1 failed (nothing is there that was not), 2 wrong usage,
  3 refused (the file is something else), 4 there is no store yet
""",
    "restore": """\
FILE [--yes] [--replace]

Put back the state that `fleetctl backup` wrote. The controller must be down. What is
there is set aside, not deleted. The next controller asks the providers what began after
the backup, and takes that over or ends it before it starts anything.

examples:
  fleetctl down; fleetctl restore fleet.backup
  fleetctl restore fleet.backup --yes
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
    made.add_argument("file", metavar="FILE", help="the backup")
    if verb == "backup":
        add_output(made, "table", "json")
    else:
        made.add_argument(
            "-y", "--yes", action="store_true", help="do not ask before the present state goes"
        )
        made.add_argument(
            "--replace", action="store_true", help="put it in place of another store, too"
        )
    return made


def run(args: Namespace, screen: Screen) -> int:
    file = Path(args.file).expanduser()
    return _backup(file, args, screen) if args.verb == "backup" else _restore(file, args, screen)


def _backup(file: Path, args: Namespace, screen: Screen) -> int:
    from fleetctl.stores import backup

    state_dir = home()
    about = backup.write(state_dir, file, now_s=SystemClock().now_s())
    file = file.absolute()
    if not backup.note_newest(state_dir, file, about):
        screen.warn(f"`{state_dir}` cannot be written: messages will not know of this backup")
    size = file.stat().st_size
    if args.output == "json":
        facts = {"file": str(file), "bytes": size, "store": about.store_id}
        screen.data(
            json.dumps({**facts, "objects": about.objects, "at": timestamp(about.copied_at_s)})
        )
        return 0
    screen.data(f"backup written: {file}, {byte_size(size)}, {plural(about.objects, 'object')}")
    return 0


def _restore(file: Path, args: Namespace, screen: Screen) -> int:
    from fleetctl.stores import backup

    place, now_s = home(), SystemClock().now_s()
    about = backup.read(file)
    loss = _loss(place, about.copied_at_s)
    if loss and not args.yes:
        from fleetctl.cli.apply.consent import accepts

        if not accepts([loss], screen):
            raise Refused(loss, hint="add --yes; what is there is set aside, not deleted")
    done = backup.restore(place, file, now_s=now_s, replace=args.replace)
    screen.data(
        f"state of {timestamp(about.copied_at_s)} is back: {plural(about.objects, 'object')}"
    )
    if done.aside is not None:
        screen.talk(f"what was there is in {done.aside}")
    screen.hint(
        "`fleetctl up --detach` goes on; it first asks the providers what began after the backup"
    )
    if not (place / LOCAL).is_dir():
        screen.hint(f"logs and volumes of provider `local` are in `{LOCAL}` of the old home")
    return 0


def _loss(state_dir: Path, copied_at_s: float) -> str:
    """A sentence when a sound store is there, whose newer state goes; empty where none is."""
    from fleetctl.views.reading import open_reading

    try:
        with open_reading(state_dir) as reading:
            many = len(reading.views())
    except (FleetctlError, OSError):
        return ""  # what is damaged is not lost by this
    if not many:
        return ""
    return (
        f"`{state_dir}` holds {plural(many, 'object')}; what changed since "
        f"{timestamp(copied_at_s)} goes with this"
    )
