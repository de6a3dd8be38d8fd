"""The work of an attempt as a job of a Ray cluster that is there already, by Ray's job REST API.

Called in the forked process that leads the attempt, in place of the work; it never returns. The job
is called as the run is, so that asking for it twice makes one. What does not answer decides
nothing: it is asked again until a stated limit. Never starts nor ends a cluster.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence, Tuple

    Tell = Callable[[dict[str, Any]], None]

ANSWER_S = 5.0  # for one answer; TERM is seen after it at the latest
SILENT_S = 600.0  # without any usable answer; a head that is made anew is back in minutes
GONE_S = 60.0  # of answers that a job which was there is unknown: its cluster has forgotten it
LAST_LOG_S = 30.0  # for the rest of the log of a job that is over; its node may be gone
POLL_S, PAUSE_MAX_S = 1.0, 30.0
LOG_SHARE = 10.0  # the whole log comes each time, so a slow one is asked for less often
REFUSALS_MAX = 3  # in a row: a wrong token or a wrong request does not mend itself
ANSWER_BYTES_MAX = 256 * 1024 * 1024
SHOWN_CHARACTERS_MAX = 2000
FAILED = "RayFailed"
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_OURS = ("FLEETCTL_RUN", "FLEETCTL_ATTEMPT", "JOB_COMPLETION_INDEX")
_LIVING, _OVER = ("PENDING", "RUNNING"), ("STOPPED", "SUCCEEDED", "FAILED")
_REFUSALS = (400, 401, 403, 404, 405, 422)
_UNIT = "fleetctl-unit"  # in the metadata of a job: of what it is an attempt


class _Failed(Exception):
    """The cluster does not carry the job out."""


def lead_job(
    asked: Mapping[str, Any], argv: Sequence[str], variables: Mapping[str, str], tell: Tell
) -> NoReturn:
    """asked: `address`, the URL of the cluster's dashboard; `names`, of the variables that go along
    with the job; `unit`, which all attempts at this work have in common. argv: of the work, which
    the cluster's shell gets as one line. variables: the whole environment here. tell: one event to
    whoever keeps the run.
    """
    job = Job(asked, argv, variables)
    signal.signal(signal.SIGTERM, job.end)
    signal.signal(signal.SIGINT, job.end)
    code = 1
    try:
        code = job.lead()
    except (_Failed, OSError) as error:
        message = str(error)
        tell({"e": "error", "reason": FAILED, "message": message})
        _write(2, f"fleetctl: {message}\n")
    os._exit(code)


class Job:
    """One job, from its submission to its end."""

    def __init__(
        self, asked: Mapping[str, Any], argv: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        self._address = asked["address"].rstrip("/")
        self._name = variables["FLEETCTL_RUN"]
        self._request = {
            "entrypoint": " ".join(shlex.quote(word) for word in argv),
            "submission_id": self._name,
            "runtime_env": {"env_vars": _along(asked["names"], variables)},
            "metadata": {_UNIT: asked["unit"]},
        }
        self._unit = asked["unit"]
        self._first = variables.get("FLEETCTL_ATTEMPT", "1") == "1"
        self._token = variables.get(TOKEN, "")
        self._told, self._tell = os.pipe()  # a byte once it is to end
        self._ending = False
        self._printed = 0  # characters of its log

    def end(self, _number: int = 0, _frame: Optional[FrameType] = None) -> None:
        """Have it stopped; safe in a signal's handler."""
        if not self._ending:
            self._ending = True
            os.write(self._tell, b".")

    def lead(self) -> int:
        """Until the job is over; its exit code. Raises _Failed."""
        if not (self._first or self._end_earlier()) or not self._submit():
            return 128 + signal.SIGTERM
        return self.lead_on()

    def lead_on(self) -> int:
        """The same, of a job that was submitted. Raises _Failed."""
        details = self._await_end()
        self._print_rest()
        status, code = details["status"], details.get("driver_exit_code")
        if status == "SUCCEEDED":
            return 0
        if self._ending:
            return 128 + signal.SIGTERM
        if status == "STOPPED":
            raise _Failed(f"job `{self._name}` was stopped at the Ray cluster")
        if not isinstance(code, int):
            why = details.get("message") or "without an exit code"
            raise _Failed(f"job `{self._name}` failed: {str(why)[:SHOWN_CHARACTERS_MAX]}")
        return 128 - code if code < 0 else code or 1

    def _end_earlier(self) -> bool:
        """End the jobs of earlier attempts: the program that followed one may have been lost.
        Whether to go on. Raises _Failed.
        """
        until_s, pause_s, refusals = time.monotonic() + SILENT_S, POLL_S, 0
        while not self._ending:
            code, reply = self._ask("GET", "")
            listed = code == 200 and isinstance(reply, list)
            living = [it for it in reply if self._is_earlier(it)] if listed else []
            if listed and not living:
                return True
            for job in living:
                self._ask("POST", f"/{job['submission_id']}/stop")
            refusals = refusals + 1 if code in _REFUSALS else 0
            if refusals >= REFUSALS_MAX or time.monotonic() > until_s:
                names = ", ".join(str(job["submission_id"]) for job in living)
                problem = f"does not end {names}" if names else "does not list its jobs"
                raise _Failed(f"{self._address} {problem}: {_shown(code, '' if names else reply)}")
            self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        return False

    def _is_earlier(self, details: Any) -> bool:
        """A living job of another attempt at the same work."""
        if _status(details) not in _LIVING or details.get("submission_id") in (None, self._name):
            return False
        return bool((details.get("metadata") or {}).get(_UNIT) == self._unit)

    def _submit(self) -> bool:
        """Whether there is a job. What it is asked twice for, Ray refuses; so after any other
        answer than yes, the question is whether it is there. Raises _Failed.
        """
        until_s, pause_s, refusals = time.monotonic() + SILENT_S, POLL_S, 0
        while True:
            code, reply = self._ask("POST", "", self._request)
            if code == 200:
                return True
            found, details = self._ask("GET", f"/{self._name}")
            if found == 200 and _status(details):
                return True
            refusals = refusals + 1 if code in _REFUSALS else 0
            if refusals >= REFUSALS_MAX or time.monotonic() > until_s:
                raise _Failed(f"{self._address} does not take the job: {_shown(code, reply)}")
            if self._ending and found == 404:
                return False
            self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _await_end(self) -> Mapping[str, Any]:
        """What Ray tells of the job once it is over. Raises _Failed."""
        now_s = time.monotonic()
        answered_s, there_s, pause_s, stopped = now_s, now_s, POLL_S, False
        while True:
            if self._ending and not stopped:
                stopped = self._ask("POST", f"/{self._name}/stop")[0] == 200
            code, details = self._ask("GET", f"/{self._name}")
            now_s = time.monotonic()
            if code == 200 and _status(details) in _OVER:
                over: Mapping[str, Any] = details
                return over
            if code == 200 and _status(details):
                answered_s = there_s = now_s
                self._print_new()
                pause_s = max(POLL_S, LOG_SHARE * (time.monotonic() - now_s))
            elif code == 404:
                answered_s = now_s
                if now_s - there_s > GONE_S:
                    raise _Failed(f"{self._address} knows no job `{self._name}` any more")
            else:
                there_s = now_s  # only answers in a row tell that it is gone
                if now_s - answered_s > SILENT_S:
                    shown = _shown(code, details)
                    raise _Failed(f"{self._address} does not tell of the job: {shown}")
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
            self._pause(POLL_S if self._ending else min(pause_s, PAUSE_MAX_S))

    def _print_new(self) -> bool:
        """Print what its log has more than before; whether it came. Where it does not, the next one
        has this part too.
        """
        code, reply = self._ask("GET", f"/{self._name}/logs")
        text = reply.get("logs") if code == 200 and isinstance(reply, dict) else None
        if not isinstance(text, str):
            return False
        _write(1, text[self._printed :])
        self._printed = max(self._printed, len(text))
        return True

    def _print_rest(self) -> None:
        until_s = time.monotonic() + LAST_LOG_S
        while not self._print_new():
            if time.monotonic() > until_s:
                _write(2, f"fleetctl: {self._address} does not give the rest of the job's log\n")
                return
            self._pause(POLL_S)

    def _pause(self, seconds: float) -> None:
        """Cut short by the request to end, once."""
        import select

        if select.select([self._told], [], [], seconds)[0] and self._ending:
            os.read(self._told, 1)

    def _ask(self, method: str, path: str, body: Any = None) -> Tuple[int, Any]:
        """(HTTP status, what came), or (0, why) for what is no whole answer."""
        import http.client
        from urllib.parse import urlsplit

        parts = urlsplit(self._address)
        secure = parts.scheme == "https"
        made = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = made(parts.hostname or "", parts.port, timeout=ANSWER_S)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, f"{parts.path}/api/jobs{path or '/'}", data, headers)
            answer = connection.getresponse()
            came = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
            return answer.status, json.loads(came) if answer.status == 200 else came
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def _along(names: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """What the work is told: its own variables, none of this machine. Without the token, which
    Ray gives to its jobs by itself.
    """
    own = {*names, *_OURS} - {TOKEN}
    return {
        name: value for name, value in variables.items() if name in own or name.startswith("TASK_")
    }


def _status(details: Any) -> str:
    """One of Ray's words, or nothing."""
    status = details.get("status") if isinstance(details, dict) else None
    return status if status in (*_LIVING, *_OVER) else ""


def _shown(code: int, reply: Any) -> str:
    """Of a traceback, the last line tells what it is."""
    lines = [line for line in str(reply).splitlines() if line.strip()] or [""]
    text = lines[-1].strip()[:SHOWN_CHARACTERS_MAX]
    return f"HTTP {code} {text}".strip() if code else text


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(descriptor, data) :]
