"""Sends calls of fleetctl_llm.py to the endpoints: kept connections, errors, fallback counts.

One file beside it, standard library only. A `Line` serves one attempt in one process.
"""

import http.client
import json
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

ANSWER_S_MAX = 3600.0  # the gateway ends a call long before, by `timeoutSeconds`
CONNECT_S_MAX = 10.0  # for one connection
# A gateway that is started again listens by then, also on a machine that has much to do.
RESTART_S_MAX = 60.0
CONNECT_PAUSE_S = 0.1
# Tries of a call whose connection ended. A gateway that ends resets the connections that it has not
# taken yet, so that one restart may cost several.
LOST_MAX = 6
IDLE_S_MAX = 10.0  # of a kept connection; servers close theirs after 15 s and more
CARRIED_MAX = 64  # calls at once where the endpoint's capacity is unknown
COUNT_MAX = 1000  # fallbacks that one message may report
FALLBACK_CALLS_MIN = 20  # below this many calls no share is reported
FALLBACK_SHARE_MAX = 0.05  # where it is not configured; Endpoint's own default
USD, TOKENS = "X-Fleetctl-Usd", "X-Fleetctl-Tokens"  # headers with known costs
PROBLEM_CHARACTERS_MAX = 300  # of each failed call, in the error of its batch

Instead = Optional[Callable[[Any, Exception], Any]]


class CallRefused(RuntimeError):
    """The endpoint does not serve this task, or not any further: a limit, a budget."""

    __module__ = "fleetctl_llm"


class TooManyFallbacks(RuntimeError):
    """Too many calls failed and were replaced for the results to be meaningful."""

    __module__ = "fleetctl_llm"


class Line:
    """Calls the endpoints of an attempt: kept connections, and counts of this process."""

    def __init__(
        self,
        gateway: str,
        base: str,
        token: str,
    ) -> None:
        parts = urlsplit(base)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._base, self._path = base, parts.path.rstrip("/")
        self._counted = bool(gateway)  # by the gateway, for the whole attempt
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._lock = threading.Lock()
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []
        self._endpoints: Dict[str, Dict[str, str]] = {}  # by model, as the gateway chooses
        self._calls = self._fallbacks = self._waiting = 0

    def ask(
        self,
        path: str,
        body: Dict[str, Any],
        calls: int,
        again: Any = None,
    ) -> Dict[str, Any]:
        """Returns the reply to one request. again: called before a repetition, because the answer
        was lost; its error is raised then. Raises RuntimeError, CallRefused.
        """
        with self._lock:
            self._calls += calls
        text = json.dumps(body).encode()
        status, data, headers = self._exchange("POST", self._path + path, text, again)
        reply = _parse_json(data)
        if status < 400 and isinstance(reply, dict):
            # Sent by the gateway alone: over all tries, and for cached answers.
            return {**reply, "fleetctl": {name: headers.get(name) for name in (USD, TOKENS)}}
        raise _error_of(status, reply, data, headers.get("Retry-After"))

    def room(self, calls: int, model: Optional[str]) -> int:
        """Returns how many of these calls may run at once. Raises CallRefused when the limit does
        not allow all of them.
        """
        told = self._limits(model)
        used = told.get("calls_used")
        allowed = told.get("calls_allowed")
        if isinstance(used, int) and isinstance(allowed, int) and used + calls > allowed:
            raise CallRefused(
                "endpoint %s: callsPerTask: %d used, %d asked, %d allowed"
                % (told.get("endpoint", ""), used, calls, allowed)
            )
        return max(1, int(told.get("concurrency") or CARRIED_MAX))

    def plan_calls(self, items: int) -> None:
        """Counts the calls of a batch that begins, since its share is of all its calls."""
        with self._lock:
            self._waiting += items

    def begun(self) -> None:
        with self._lock:
            self._waiting -= 1

    def price(self, model: Optional[str]) -> Any:
        """Returns the gateway's price in USD of a million tokens; None when unknown."""
        return self._limits(model).get("price")

    def replaced(
        self,
        original: Any,
        error: Exception,
        instead: Instead,
        model: Optional[str] = None,
        calls: int = 1,
    ) -> Any:
        """Returns the substitute for calls that failed, and counts them. Raises `error` itself
        where there is no substitute, TooManyFallbacks.
        """
        if instead is None or isinstance(error, (CallRefused, TooManyFallbacks)):
            raise error
        with self._lock:
            self._fallbacks += calls
        told: Dict[str, Any] = {}
        for begin in range(0, calls, COUNT_MAX):
            body = {**self._name_model(model), "count": min(COUNT_MAX, calls - begin)}
            told = self._read_record("POST", "/fallbacks", json.dumps(body).encode())
        with self._lock:
            asked = max(self._calls, int(told.get("calls") or 0)) + self._waiting
            fallbacks = max(self._fallbacks, int(told.get("fallbacks") or 0))
        most = float(os.environ.get("FLEETCTL_LLM_MAX_FALLBACK_SHARE") or FALLBACK_SHARE_MAX)
        if asked >= FALLBACK_CALLS_MIN and fallbacks > most * asked:
            raise TooManyFallbacks(
                "%d of %d calls failed and were replaced; the endpoint's maxFallbackShare is %g:"
                " the last one: %s" % (fallbacks, asked, most, shorten_error(error))
            ) from error
        return instead(original, error)

    def _limits(self, model: Optional[str]) -> Dict[str, Any]:
        """Returns the limits of the endpoint that a call with this model goes to."""
        name = model_of(model).get("model", "")
        told = self._read_record("GET", "/limits?model=" + quote(name), b"")
        if "endpoint" in told:
            self._endpoints[name] = {"endpoint": told["endpoint"]}
        return told

    def _name_model(self, model: Optional[str]) -> Dict[str, str]:
        name = model_of(model).get("model", "")
        if name not in self._endpoints:
            self._limits(model)
        return self._endpoints.get(name, {})

    def _read_record(
        self,
        method: str,
        path: str,
        data: bytes,
    ) -> Dict[str, Any]:
        """Returns the gateway's record of the attempt; {} for a server that is called directly, or
        an unreachable gateway, and then only our own counts remain.
        """
        if not self._counted:
            return {}
        try:
            status, data, _ = self._exchange(method, path, data)
        except RuntimeError:
            return {}
        reply = _parse_json(data)
        if status < 400 and isinstance(reply, dict):
            return reply
        return {}

    def _exchange(
        self,
        method: str,
        path: str,
        data: bytes,
        again: Any = None,
    ) -> Tuple[int, bytes, Any]:
        lost = 0
        while True:
            connection = self._take_connection()
            try:
                connection.request(method, path, data or None, self._headers)
                reply = connection.getresponse()
                answer = reply.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                lost += 1
                if lost >= LOST_MAX or isinstance(error, socket.timeout):
                    why = str(error) or type(error).__name__
                    raise RuntimeError("%s did not answer: %s" % (self._base, why)) from error
                if again is not None:
                    again()
                continue
            if connection.sock is not None:  # the server keeps it, too
                with self._lock:
                    self._idle.append((connection, time.monotonic()))
            return reply.status, answer, reply.headers

    def _take_connection(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, since_s = self._idle.pop()
            if time.monotonic() - since_s < IDLE_S_MAX and not _is_closed(connection):
                return connection
            connection.close()
        until_s = time.monotonic() + RESTART_S_MAX
        while True:
            made = self._make_connection()
            try:
                made.connect()
            except OSError as error:
                if time.monotonic() >= until_s:
                    raise RuntimeError(
                        "%s cannot be reached: %s" % (self._base, error.strerror or error)
                    ) from error
                time.sleep(CONNECT_PAUSE_S)
                continue
            made.sock.settimeout(ANSWER_S_MAX)
            return made

    def _make_connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_S_MAX, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_S_MAX)


_lines: Dict[Tuple[str, str, str], Line] = {}  # for one attempt; a sandbox may have several in turn
_choosing = threading.Lock()


def line_of(caller: str) -> Line:
    gateway = os.environ.get("FLEETCTL_LLM_URL", "").rstrip("/")
    base = gateway + "/v1" if gateway else os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    if not base:
        raise RuntimeError(
            "%s: the task has no model endpoint: `template.endpoints: [NAME]` is missing" % caller
        )
    key = (gateway, base, os.environ.get("OPENAI_API_KEY", ""))
    with _choosing:
        if key not in _lines:
            _lines.clear()
            _lines[key] = Line(*key)
        return _lines[key]


def _drop_connections() -> None:
    """Drops the connections in a child, which must not share its parent's."""
    global _choosing
    _choosing = threading.Lock()
    _lines.clear()


os.register_at_fork(after_in_child=_drop_connections)


def shorten_error(error: Exception) -> str:
    """Returns the error's text on one line."""
    return " ".join(str(error).split())[:PROBLEM_CHARACTERS_MAX]


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Returns whether the other side has closed it: an idle connection is readable only then."""
    looking = select.poll()
    looking.register(connection.sock, select.POLLIN)
    return bool(looking.poll(0))


def _parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _error_of(
    status: int,
    reply: Any,
    data: bytes,
    later: Optional[str],
) -> RuntimeError:
    error = reply.get("error", reply) if isinstance(reply, dict) else None
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or ""
        if error.get("type") == "fleetctl":  # the gateway's own; 502 is a server's fault
            return _mark_unasked(
                (CallRefused if status < 500 else RuntimeError)(str(message)), status
            )
    else:
        message = error or data.decode("utf-8", "replace")
    whole = ("the model server answered %d: %s" % (status, message)).rstrip(": ")
    if later:
        whole += "; it asks to wait (Retry-After: %s)" % later
    return _mark_unasked(RuntimeError(whole), status)


def _mark_unasked(error: RuntimeError, status: int) -> RuntimeError:
    """Marks an error where no model was called: the call was refused, or no server listened."""
    late = status == 408  # a model may have begun the answer
    error.unasked = status == 503 or (status < 500 and not late)  # type: ignore[attr-defined]
    return error


def model_of(name: Optional[str]) -> Dict[str, str]:
    name = name or os.environ.get("FLEETCTL_LLM_MODEL")
    if name:
        return {"model": name}
    return {}
