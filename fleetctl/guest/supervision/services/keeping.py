"""What whoever keeps a run makes of its services' words: a log of each, and their states in the
journal. The words come from within the sandbox, so what makes no sense is dropped.
"""

from __future__ import annotations

import binascii

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.guest.supervision.services.process import STARTING, STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from fleetctl.guest.journal.record import Journal

LOG_BYTES_MAX = 16 * 1024 * 1024  # of one service
NOTES_MAX = 200  # of one run; a service may be started again and again


class ServiceRecords:
    def __init__(self, names: Iterable[str], directory: int, run: str, bytes_max: int) -> None:
        """directory: the open one of journals and logs; bytes_max: of a log of the run."""
        most = min(bytes_max, LOG_BYTES_MAX)
        self._logs = {name: LogFile(directory, service_name(run, name), most) for name in names}
        self._states = dict.fromkeys(self._logs, STARTING)
        self._notes = 0

    def hear(self, event: dict[str, Any], journal: Journal) -> bool:
        """Take in an event of the run's leader; whether something of it is new in the journal."""
        kind, name = event.get("e"), event.get("name")
        if not isinstance(name, str) or name not in self._logs:
            return False
        if kind == "service_log":
            self._write(name, event.get("b64"))
        elif kind == "service" and event.get("state") in STATES and self._notes < NOTES_MAX:
            self._notes += 1
            self._states[name] = event["state"]
            return journal.note("services", {"services": self._states})
        return False

    def close(self) -> None:
        """The logs are whole."""
        for log in self._logs.values():
            log.close()

    def _write(self, name: str, text: Any) -> None:
        try:
            data = binascii.a2b_base64(text)
        except (TypeError, ValueError):
            return
        self._logs[name].write(data)
