"""Runs the work of an attempt as a job of an existing Ray cluster, by Ray's job REST API.

Called in the forked process that leads the attempt, instead of the work; it never returns. The job
is named after the run, so that a repeated submission makes one job. A failed request has no
consequence: it is repeated until a stated limit. Never starts nor ends a cluster.
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

ANSWER_S = 5.0  # for one reply; TERM is noticed after it at the latest
SILENT_S = 600.0  # without any usable reply; a head that is started again is back in minutes
GONE_S = 60.0  # how long replies may lack a job that existed: then its cluster has forgotten it
LAST_LOG_S = 30.0  # for the rest of the log of a finished job; its node may be gone
POLL_S = 1.0
PAUSE_MAX_S = 30.0
LOG_SHARE = 10.0  # the whole log comes each time, so a slow one is requested less often
REFUSALS_MAX = 3  # in a row: a wrong token or a wrong request does not fix itself
ANSWER_BYTES_MAX = 256 * 1024 * 1024
SHOWN_CHARACTERS_MAX = 2000
FAILED = "RayFailed"
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_OURS = ("FLEETCTL_RUN", "FLEETCTL_ATTEMPT", "JOB_COMPLETION_INDEX")
_LIVING = ("PENDING", "RUNNING")
_OVER = ("STOPPED", "SUCCEEDED", "FAILED")
_REFUSALS = (400, 401, 403, 404, 405, 422)
_UNIT = "fleetctl-unit"  # in the metadata of a job: the unit that it is an attempt at


class _RayJobFailed(Exception):
    """The cluster does not carry the job out."""


def lead_job(
    asked: Mapping[str, Any],
    argv: Sequence[str],
    variables: Mapping[str, str],
    tell: Tell,
) -> NoReturn:
    """Runs the job to its end, and ends this process with its exit code.

    asked: `address`, the URL of the cluster's dashboard; `names`, of the variables that the job
    gets; `unit`, which all attempts at this work have in common. argv: of the work, which the
    cluster's shell gets as one line. variables: the whole environment here. tell: sends one event
    to the run's supervisor.
    """
    job = Job(asked, argv, variables)
    signal.signal(signal.SIGTERM, job.end)
    signal.signal(signal.SIGINT, job.end)
    code = 1
    try:
        code = job.lead()
    except (_RayJobFailed, OSError) as error:
        message = str(error)
        tell({"e": "error", "reason": FAILED, "message": message})
        _write_all(2, f"fleetctl: {message}\n")
    os._exit(code)


class Job:
    """One job, from its submission to its end."""

    def __init__(
        self,
        asked: Mapping[str, Any],
        argv: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self._address = asked["address"].rstrip("/")
        self._name = variables["FLEETCTL_RUN"]
        self._request = {
            "entrypoint": " ".join(shlex.quote(word) for word in argv),
            "submission_id": self._name,
            "runtime_env": {"env_vars": _job_variables(asked["names"], variables)},
            "metadata": {_UNIT: asked["unit"]},
        }
        self._unit = asked["unit"]
        self._first = variables.get("FLEETCTL_ATTEMPT", "1") == "1"
        self._token = variables.get(TOKEN, "")
        self._told, self._tell = os.pipe()  # receives a byte when the job has to end
        self._ending = False
        self._printed = 0  # characters of its log

    def end(self, _number: int = 0, _frame: Optional[FrameType] = None) -> None:
        """Requests the job's stop; safe in a signal's handler."""
        if not self._ending:
            self._ending = True
            os.write(self._tell, b".")

    def lead(self) -> int:
        """Submits the job and follows it to its end; its exit code. Raises _RayJobFailed."""
        if not (self._first or self._end_earlier()) or not self._submit():
            return 128 + signal.SIGTERM
        return self.lead_on()

    def lead_on(self) -> int:
        """Follows a submitted job to its end; its exit code. Raises _RayJobFailed."""
        details = self._await_end()
        self._print_rest()
        status = details["status"]
        code = details.get("driver_exit_code")
        if status == "SUCCEEDED":
            return 0
        if self._ending:
            return 128 + signal.SIGTERM
        if status == "STOPPED":
            raise _RayJobFailed(f"job `{self._name}` was stopped at the Ray cluster")
        if not isinstance(code, int):
            why = details.get("message") or "without an exit code"
            raise _RayJobFailed(f"job `{self._name}` failed: {str(why)[:SHOWN_CHARACTERS_MAX]}")
        return 128 - code if code < 0 else code or 1

    def _end_earlier(self) -> bool:
        """Ends the jobs of earlier attempts, whose followers may have been lost. Returns whether to
        continue. Raises _RayJobFailed.
        """
        until_s = time.monotonic() + SILENT_S
        pause_s = POLL_S
        refusals = 0
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
                raise _RayJobFailed(
                    f"{self._address} {problem}: {_shorten_reply(code, '' if names else reply)}"
                )
            self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        return False

    def _is_earlier(self, details: Any) -> bool:
        """Returns whether it is a living job of another attempt at the same work."""
        if _job_status(details) not in _LIVING or details.get("submission_id") in (
            None,
            self._name,
        ):
            return False
        return bool((details.get("metadata") or {}).get(_UNIT) == self._unit)

    def _submit(self) -> bool:
        """Submits the job; returns whether there is one. Ray refuses a repeated submission; so
        after any failure, checks whether the job exists. Raises _RayJobFailed.
        """
        until_s = time.monotonic() + SILENT_S
        pause_s = POLL_S
        refusals = 0
        while True:
            code, reply = self._ask("POST", "", self._request)
            if code == 200:
                return True
            found, details = self._ask("GET", f"/{self._name}")
            if found == 200 and _job_status(details):
                return True
            refusals = refusals + 1 if code in _REFUSALS else 0
            if refusals >= REFUSALS_MAX or time.monotonic() > until_s:
                raise _RayJobFailed(
                    f"{self._address} does not take the job: {_shorten_reply(code, reply)}"
                )
            if self._ending and found == 404:
                return False
            self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _await_end(self) -> Mapping[str, Any]:
        """Returns Ray's record of the job once it has finished. Raises _RayJobFailed."""
        now_s = time.monotonic()
        answered_s = now_s
        there_s = now_s
        pause_s = POLL_S
        stopped = False
        while True:
            if self._ending and not stopped:
                stopped = self._ask("POST", f"/{self._name}/stop")[0] == 200
            code, details = self._ask("GET", f"/{self._name}")
            now_s = time.monotonic()
            if code == 200 and _job_status(details) in _OVER:
                over: Mapping[str, Any] = details
                return over
            if code == 200 and _job_status(details):
                answered_s = there_s = now_s
                self._print_new()
                pause_s = max(POLL_S, LOG_SHARE * (time.monotonic() - now_s))
            elif code == 404:
                answered_s = now_s
                if now_s - there_s > GONE_S:
                    raise _RayJobFailed(f"{self._address} knows no job `{self._name}` any more")
            else:
                there_s = now_s  # only replies in a row show that the job has disappeared
                if now_s - answered_s > SILENT_S:
                    shown = _shorten_reply(code, details)
                    raise _RayJobFailed(f"{self._address} does not report the job: {shown}")
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
            self._pause(POLL_S if self._ending else min(pause_s, PAUSE_MAX_S))

    def _print_new(self) -> bool:
        """Prints the new part of its log; returns whether it came. If not, the next request brings
        this part too.
        """
        code, reply = self._ask("GET", f"/{self._name}/logs")
        text = reply.get("logs") if code == 200 and isinstance(reply, dict) else None
        if not isinstance(text, str):
            return False
        _write_all(1, text[self._printed :])
        self._printed = max(self._printed, len(text))
        return True

    def _print_rest(self) -> None:
        until_s = time.monotonic() + LAST_LOG_S
        while not self._print_new():
            if time.monotonic() > until_s:
                _write_all(
                    2, f"fleetctl: {self._address} does not give the rest of the job's log\n"
                )
                return
            self._pause(POLL_S)

    def _pause(self, seconds: float) -> None:
        """Waits; the first request to end cuts it short."""
        import select

        if select.select([self._told], [], [], seconds)[0] and self._ending:
            os.read(self._told, 1)

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
    ) -> Tuple[int, Any]:
        """Returns (HTTP status, reply), or (0, reason) without a whole reply."""
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


def _job_variables(names: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the job's variables: the work's own, none of this machine. Without the token, which
    Ray gives to its jobs by itself.
    """
    own = {*names, *_OURS} - {TOKEN}
    return {
        name: value for name, value in variables.items() if name in own or name.startswith("TASK_")
    }


def _job_status(details: Any) -> str:
    """Returns Ray's word for the state, or ""."""
    status = details.get("status") if isinstance(details, dict) else None
    return status if status in (*_LIVING, *_OVER) else ""


def _shorten_reply(code: int, reply: Any) -> str:
    """Returns the reply's text for a message; the last line of a traceback names the error."""
    lines = [line for line in str(reply).splitlines() if line.strip()] or [""]
    text = lines[-1].strip()[:SHOWN_CHARACTERS_MAX]
    return f"HTTP {code} {text}".strip() if code else text


def _write_all(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(descriptor, data) :]
