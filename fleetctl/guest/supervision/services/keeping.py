"""Records the events of a run's services: a log of each, and their states in the journal. Called by
the run's supervisor. The events come from within the sandbox, so invalid ones are dropped.
"""

from __future__ import annotations

import binascii

from fleetctl.guest.journal.logfile import LogFile
from fleetctl.guest.supervision.services.names import service_name
from fleetctl.guest.supervision.services.process import STARTING, STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Optional

    from fleetctl.guest.journal.masking import Masking
    from fleetctl.guest.journal.record import Journal

LOG_BYTES_MAX = 16 * 1024 * 1024  # of each service
NOTES_MAX = 200  # of each run; a service may be started again and again


class ServiceRecords:
    def __init__(
        self,
        names: Iterable[str],
        directory: int,
        run: str,
        bytes_max: int,
        masking: Optional[Masking] = None,
    ) -> None:
        """directory: the open one of journals and logs; bytes_max: of a log of the run; masking:
        as for the run's logs.
        """
        most = min(bytes_max, LOG_BYTES_MAX)
        self._logs = {
            name: LogFile(directory, service_name(run, name), most, masking) for name in names
        }
        self._states = dict.fromkeys(self._logs, STARTING)
        self._notes = 0

    def hear(self, event: dict[str, Any], journal: Journal) -> bool:
        """Takes an event of the run's leader; returns whether the journal gained a line."""
        kind = event.get("e")
        name = event.get("name")
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
        """Closes the complete logs."""
        for log in self._logs.values():
            log.close()

    def _write(self, name: str, text: Any) -> None:
        try:
            data = binascii.a2b_base64(text)
        except (TypeError, ValueError):
            return
        self._logs[name].write(data)
