"""Reads what the processes of a run say: output into its log, events into its record.

Called by supervise.py. A task could write anything on its channel; what makes no sense is dropped.
"""

from __future__ import annotations

import json
import os
from typing import Callable, Optional

from ...io.poller import Poller
from ..sandbox import CHANNEL_LINE_BYTES_MAX, Run, Sandbox

READ_BYTES_MAX = 1024 * 1024
REMARKS_MAX = 3  # a task could go on for ever
DRAIN_READS_MAX = (
    256  # the last words of a run that a process of an open sandbox keeps talking over
)


class Hearing:
    def __init__(
        self,
        poller: Poller,
        changed: Callable[[str], None],
        done: Callable[[Sandbox, Run], None],
        ready: Callable[[Sandbox], None],
    ) -> None:
        """changed: a run reported something; done: a worker finished a run and lives on; ready: a
        node waits for the others.
        """
        self._poller = poller
        self._changed = changed
        self._done = done
        self._ready = ready

    def attend(self, sandbox: Sandbox, run: Run) -> None:
        """Listen to the output of a run, and to the channel of its sandbox if that is new."""
        assert run.output is not None
        os.set_blocking(run.output, False)
        self._poller.watch(run.output, self._pump, run)
        channel = sandbox.channel
        if channel is not None and not sandbox.heard:
            sandbox.heard = True
            os.set_blocking(channel, False)
            self._poller.watch(channel, self._listen, sandbox)

    def hang_up(self, sandbox: Sandbox) -> None:
        """Close the channel; a worker that waits for a task leaves then."""
        if sandbox.channel is not None:
            if sandbox.heard:
                self._poller.forget(sandbox.channel)
            os.close(sandbox.channel)
            sandbox.channel, sandbox.heard, sandbox.received = None, False, b""

    def finish(self, sandbox: Sandbox, run: Run) -> None:
        """Take in the last words of a run that is over, then stop listening to its output."""
        if sandbox.status is not None:
            for _ in range(DRAIN_READS_MAX):
                if not self._listen(sandbox):
                    break
            self.hang_up(sandbox)
        for _ in range(DRAIN_READS_MAX):
            if not self._pump(run):
                break
        self._forget_output(run)

    def _pump(self, run: Run) -> bool:
        """Move some output to the log; False when there is none now."""
        if run.output is None:
            return False
        data = _read(run.output)
        if data is None:
            return False
        if data:
            run.log.write(data)
            run.heard += len(data)
            if run.hear is not None:
                run.hear(data)
        else:
            self._forget_output(run)
        return bool(data)

    def _forget_output(self, run: Run) -> None:
        if run.output is not None:
            self._poller.forget(run.output)
            os.close(run.output)
            run.output = None

    def _listen(self, sandbox: Sandbox) -> bool:
        """Take in some events; False when there are none now."""
        if sandbox.channel is None:
            return False
        data = _read(sandbox.channel)
        if data is None:
            return False
        if not data:
            self.hang_up(sandbox)
            return False
        *lines, sandbox.received = (sandbox.received + data).split(b"\n")
        for line in lines:
            self._hear(sandbox, line)
        if len(sandbox.received) > CHANNEL_LINE_BYTES_MAX:
            if sandbox.run is not None:
                sandbox.run.error = _TOO_LONG
            self.hang_up(sandbox)
        return True

    def _hear(self, sandbox: Sandbox, line: bytes) -> None:
        run = sandbox.run
        try:
            event = json.loads(line)
            kind = event["e"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if run is None:
            return
        if kind == "metric":
            if run.journal.metric(event.get("step"), event.get("values"), event.get("at")):
                self._changed(run.name)
        elif kind == "result" and not run.has_result:
            run.result = event.get("value")
            run.has_result = True
        elif kind == "error" and isinstance(event.get("reason"), str):
            run.error = {
                "reason": event["reason"][:64],
                "message": str(event.get("message"))[:4096],
            }
        elif kind == "ready":
            self._ready(sandbox)
        elif any(part.hear(event, run.journal) for part in (run.services, run.checkpoints) if part):
            self._changed(run.name)
        elif kind == "remark" and len(run.remarks) < REMARKS_MAX:
            run.remarks.append(str(event.get("message"))[:1024])
        elif kind == "done" and sandbox.serves and isinstance(event.get("exit"), int):
            run.exit_code = event["exit"] & 0xFF
            self._done(sandbox, run)


def _read(handle: int) -> Optional[bytes]:
    """None when there is nothing now; empty when nobody writes there any more."""
    try:
        return os.read(handle, READ_BYTES_MAX)
    except BlockingIOError:
        return None
    except OSError:
        return b""


_TOO_LONG = {"reason": "ResultInvalid", "message": "the task said more than a result may hold"}
