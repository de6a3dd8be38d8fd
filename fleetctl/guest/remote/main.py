"""The verbs of the guest in a remote sandbox.

  idle   --dir D --begin-s S                         be the inert entrypoint of a sandbox
  attach --dir D --run NAME --journal A --log B [--order BASE64 | --order -] [--for S]
                                                     begin the run unless it has begun, and follow
                                                     it, not longer than S seconds
         ... --services NAME=C,...                    and the logs of its services from there
         ... --outputs O                              and what is kept of its files
         ... --stay yes                              this process lives as long as the sandbox
         ... --gate N                                the descriptor that is closed once it is held
         ... --more yes                              and then others; see verbs.py
  turns  --dir D                                     the same from the first on, all over stdin
  lead   --dir D --run NAME                          begin the run whose order is on stdin, and be
                                                     the sandbox's supervisor, with no follower
  stop   --dir D --run NAME --grace S                end the run; returns at once
  leave  --dir D [--why SandboxEnded]                the sandbox may end now; why a run that is in
                                                     it ends: its sandbox is preempted
  relay  --dir D --run NAME                          carry its model calls over stdin and stdout

Standard library only, Python 3.9 and later, `python3 -I -S`. No verb imports more than it needs:
a sandbox for each task pays for the imports at each task.
"""

from __future__ import annotations

import os
import sys

from fleetctl.guest.remote import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Optional

DIRECTORY = "/tmp/.fleetctl"  # private to the sandbox
USAGE = 64


def main(argv: list[str]) -> int:
    """Runs a verb; returns the exit code."""
    verb, options = argv[1], dict(zip(argv[2::2], argv[3::2]))  # Python 3.9 has no strict
    place.enter_state_directory(options.get("--dir", DIRECTORY))
    if verb == "attach":
        from fleetctl.guest.remote.verbs import attach_run

        services = _offsets_of(options.get("--services", ""))
        at = [int(options.get(f"--{name}", 0)) for name in ("journal", "log", "outputs")]
        offsets = at[0], at[1], services, at[2]
        for_s = float(options["--for"]) if "--for" in options else None
        try:
            order = _read_order(options.get("--order"))
            code = attach_run(
                options["--run"],
                offsets,
                order,
                for_s,
                stay="--stay" in options,
                gate=int(options.get("--gate", -1)),
            )
            if "--more" in options and code == 0:
                from fleetctl.guest.remote.verbs import attach_in_turn

                code = attach_in_turn()
        except BrokenPipeError:
            return 0  # the reader has closed the pipe
        return code
    if verb == "turns":
        from fleetctl.guest.remote.verbs import attach_in_turn

        return attach_in_turn()
    if verb == "relay":
        from fleetctl.guest.remote.relay.keeper import join_relay

        return join_relay(options["--run"])
    from fleetctl.guest.remote import verbs

    if verb == "lead":
        return verbs.lead_sandbox(options["--run"], str(_read_order("-")))
    if verb == "idle":
        return verbs.wait_idle(float(options["--begin-s"]))
    if verb == "stop":
        return verbs.stop_run(options["--run"], float(options["--grace"]))
    if verb == "leave":
        return verbs.leave_sandbox(options.get("--why", "Stopped"))
    os.write(
        2, b"fleetctl: the verb must be one of idle, attach, turns, lead, stop, leave, relay\n"
    )
    return USAGE


def exit_at_once(code: int) -> NoReturn:
    """Exits at once: tearing an interpreter down costs more than a verb does."""
    os._exit(code)


def _offsets_of(text: str) -> dict[str, int]:
    """Parses offsets by names of services."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return {name: int(offset) for name, _, offset in pairs}


def _read_order(text: Optional[str]) -> Optional[str]:
    """Returns the order's JSON, which came in an argument or on stdin."""
    if text is None:
        return None
    if text == "-":
        return sys.stdin.buffer.read().decode()
    import binascii

    return binascii.a2b_base64(text).decode()
