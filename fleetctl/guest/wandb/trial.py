"""One trial whose program uses wandb: sets its environment, writes the file in which `wandb.init`
finds its parameters, and records its metrics and results.

wandb writes its files offline, without an account; they are read here, and no link is ever
followed. A trial never connects to W&B.
"""

from __future__ import annotations

import ast
import os
import re

from fleetctl.guest.journal.digest import result_line
from fleetctl.guest.journal.results import judge_result, read_file
from fleetctl.guest.metrics.thinning import NAMES_MAX, Sample
from fleetctl.guest.wandb.file import WandbFile

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Optional

    from fleetctl.guest.journal.record import Journal


READ_BYTES_MAX = 1024 * 1024  # a look, so that one trial does not hold up others
FILES_MAX = 100  # in one trial: one for each time that it calls `init`
RESULT_ITEMS_MAX = 1000
TEXT_CHARACTERS_MAX = 1024  # in one item of a result
NETRC_BYTES_MAX = 64 * 1024
LIVE_FROM = (0, 31)  # wandb writes each second; before, a block of 32 KiB at a time
UNREAD = "ParametersUnread"
UNREAD_TEXT = (
    "it ended well and nothing had read its parameters: its command has no `${args}`, it did not"
    " call wandb.init, and it reported nothing, so it ran with its own defaults"
)
OWN_VALUES_TEXT = (
    "ParametersUnread: it gave wandb.init values of its own: {values}; its command has no"
    " `${{args}}`, so unless it reads `wandb.config` it ran with its own defaults"
)
VALUES_SHOWN_MAX = 5
LOG = "logs/debug.log"  # below the directory of a run: the arguments that the program gave `init`
LOG_BYTES_MAX = 256 * 1024
# A program that sets one of these wants W&B itself: then wandb gets the parameters and no more.
OWN = ("WANDB_API_KEY", "WANDB_MODE")
_OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": "1",
    "WANDB_CONSOLE": "off",
    "WANDB_SILENT": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
}
_NAMES = ("SWEEP_ID", "PROJECT", "ENTITY")
_CONFIG = re.compile(r"wandb\.init called with sweep_config: .*\nconfig: (\{.*)")
# Set for a run that W&B has handed out: its program is to continue that run, and to upload.
_HANDED_OUT = (*_NAMES, "RUN_ID", "BASE_URL")


def _list_variables(
    order: Mapping[str, Any],
    home: str,
    known: Mapping[str, str],
) -> dict[str, str]:
    """Returns the variables that name the run at W&B; one of its own without a connection, unless
    the program's variables, `known`, have an account. home: the directory of the trial.
    """
    asked = order["wandb"]
    if asked.get("RUN_ID"):
        variables = {f"WANDB_{name}": asked[name] for name in _HANDED_OUT if asked[name]}
        if order.get("attempt", 1) > 1:
            # W&B has the run of a lost attempt, and the metrics that it had sent by then.
            variables["WANDB_RESUME"] = "allow"
        return variables
    if any(name in known for name in OWN) or _logged_in(known):
        return {}
    variables = {**_OFFLINE, "WANDB_DIR": home, "WANDB_RUN_ID": order["run"]}
    variables |= {f"WANDB_{name}": asked[name] for name in _NAMES if asked[name]}
    return variables


class Trial:
    """One attempt. No file is made or read before `prepare`."""

    def __init__(
        self,
        order: Mapping[str, Any],
        files: str,
        known: Mapping[str, str],
        start: str,
    ) -> None:
        """files: the directory of files that tasks write for us; known: the program's other
        variables, which win; start: the directory that it begins in.
        """
        asked = order["wandb"]
        home = os.path.join(files, f"wandb-{order['run']}")
        self._params = order["params"]
        self._only: bool = asked["only"]
        self._compares: bool = asked.get("compares", False)
        self._parameters = os.path.join(home, "parameters.yaml")
        self._told = (self._parameters, os.path.join(files, "params.json"))

        ours = {"WANDB_SWEEP_PARAM_PATH": self._parameters, **_list_variables(order, home, known)}
        self.variables = {name: text for name, text in ours.items() if name not in known}

        theirs = os.path.join(start, known.get("WANDB_DIR", ""), "wandb")
        # Where wandb may write, and which directories of other runs are there.
        self._tops: dict[str, frozenset[str]] = {theirs: frozenset()}
        self._tops[os.path.join(home, "wandb")] = frozenset()
        self._found: dict[str, WandbFile] = {}
        self._last: dict[str, float] = {}
        self._metric: str = asked["metric"]
        self._sample = Sample(self._metric)

    def prepare(self) -> None:
        """Makes the trial's directory, and the file with its parameters. Raises OSError."""
        os.makedirs(os.path.dirname(self._parameters), 0o700, exist_ok=True)
        _write_file(self._parameters, parameter_file(self._params))
        for path in self._told:  # as if never read, so that a later read is noticed
            os.utime(path, ns=(0, os.stat(path).st_mtime_ns))

    def begin(self) -> None:
        """Begins; called where the trial is followed, before its program starts."""
        self._tops = {top: _list_runs(top) for top in self._tops}

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Records reports of the program since the last look, or all that remain; returns whether
        there were any.
        """
        news = False
        for directory, name, file in self._files():
            while data := read_file(directory, name, file.offset, READ_BYTES_MAX):
                before = file.offset
                for step, at_s, values in file.take(data):
                    self._last.update(values)
                    picked = self._sample.pick(step, at_s, values)
                    news = journal.metric(step or 0, picked, at_s) or news
                if not whole or file.offset == before:
                    break
        for step, at_s, values in self._sample.rest() if whole else ():
            news = journal.metric(step or 0, values, at_s) or news
        return news

    def result(self) -> Optional[dict[str, Any]]:
        """Returns the run's summary; None without one. Reported metrics have their last value."""
        found: dict[str, Any] = {}
        for file in self._found.values():
            found.update(file.summary())
        found.update((name, it) for name, it in self._last.items() if name in found)
        kept = list(found.items())[:RESULT_ITEMS_MAX]
        return {
            name: it[:TEXT_CHARACTERS_MAX] if isinstance(it, str) else it for name, it in kept
        } or None

    def conclude(
        self,
        line: str,
        ended: dict[str, Any],
        journal: Journal,
    ) -> str:
        """Returns the journal's line for the result: `line`, if the program handed one in, else
        that of wandb's summary, or "". Adds to how the run ended, which is a failure when its
        parameters were not read.
        """
        if not ended["ok"]:
            return line
        remarks = (ended["message"], self.remark, self._describe_differences())
        ended["message"] = "; ".join(filter(None, remarks))
        found = self.result() or {}
        if line and self._metric in found and self._metric not in self._last:
            journal.metric(0, {self._metric: found[self._metric]}, None)
        line = line or _result_line(found)
        if not (line or journal.reported) and self.unread:
            ended.update(
                ok=False,
                reason=UNREAD,
                message=UNREAD_TEXT,
            )
        return line

    def _describe_differences(self) -> str:
        """Returns a remark on values of the program's own that are not those it was to run with, or
        "". No failure: a program that gives `init` defaults and reads `wandb.config` runs with the
        values that it was given, and looks the same from here.
        """
        if not self._compares:
            return ""
        for path in self._found:
            own = read_own_config(os.path.join(path, LOG))
            odd = [
                f"{name}={own[name]} and not {value}"
                for name, value in self._params.items()
                if name in own and not _is_equal(own[name], value)
            ]
            if odd:
                return OWN_VALUES_TEXT.format(values=", ".join(odd[:VALUES_SHOWN_MAX]))
        return ""

    @property
    def remark(self) -> str:
        """Returns a remark for the user, or ""."""
        files = self._found.values()
        odd = next((it.not_finite for it in files if it.not_finite), "")
        lines = [f"{odd} is not a finite number" if odd else ""]
        late = [it for it in files if it.rows and not _is_live(it.version)]
        if late:
            version = f"wandb {late[0].version or 'before 0.22'}"
            lines.append(f"{version} writes values a block at a time, so late; 0.31 each second")
        if self._sample.at_capacity:
            lines.append(f"it logged more than {NAMES_MAX} names, or longer than can be recorded")
        if any(it.damaged for it in files):
            lines.append("parts of what wandb wrote are damaged and are not recorded")
        return "; ".join(filter(None, lines))

    @property
    def unread(self) -> bool:
        """Returns False when the parameters were read, or may have been."""
        if not self._only or self._found or any(map(_was_read, self._told)):
            return False
        if "WANDB_DIR" in self.variables:
            return True
        # wandb writes where its settings point, so only the times of its files show a read.
        return _keeps_times(self._parameters)

    def _files(self) -> Iterator[tuple[int, str, WandbFile]]:
        """Yields (its open directory, its name, its reader) of each file of wandb, by age."""
        found = [
            (name.partition("run-")[2], os.path.join(top, name))
            for top, before in self._tops.items()
            for name in _list_runs(top) - before
        ]
        for _, path in sorted(found)[:FILES_MAX]:
            directory = _open_directory(path)
            if directory is None:
                continue
            try:
                names = [it for it in os.listdir(directory) if it.endswith(".wandb")]
                for name in names[:1]:
                    yield directory, name, self._found.setdefault(path, WandbFile())
            finally:
                os.close(directory)


def read_own_config(path: str) -> dict[str, Any]:
    """Returns the `config` that the program gave `wandb.init`, over which its sweep's values win in
    `wandb.config`; as wandb's own log has it. {} where that cannot be read.
    """
    directory = _open_directory(os.path.dirname(path))
    if directory is None:
        return {}
    try:
        data = read_file(directory, os.path.basename(path), 0, LOG_BYTES_MAX) or b""
    finally:
        os.close(directory)
    found = _CONFIG.search(data.decode("utf-8", "replace"))
    try:
        config = ast.literal_eval(found[1]) if found else {}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}  # it holds other values than plain ones
    if isinstance(config, dict):
        return config
    return {}


def _is_equal(own: Any, wanted: Any) -> bool:
    """Compares values, also a number with its text, or a whole number with a fraction."""
    return own == wanted or str(own) == str(wanted)


def _logged_in(known: Mapping[str, str]) -> bool:
    """Returns whether `wandb login` has left a key in the image."""
    path = known.get("NETRC") or os.path.join(known.get("HOME", "/root"), ".netrc")
    host = known.get("WANDB_BASE_URL", "https://api.wandb.ai").partition("://")[2]
    host = host.partition("/")[0].partition(":")[0]
    directory = _open_directory(os.path.dirname(path))
    if directory is None:
        return False
    try:
        data = read_file(directory, os.path.basename(path), 0, NETRC_BYTES_MAX) or b""
    finally:
        os.close(directory)
    return host.encode() in data.split()


def _result_line(result: dict[str, Any]) -> str:
    """Returns the journal's line, without texts where they are too long, or ""."""
    numbers = {name: it for name, it in result.items() if not isinstance(it, str)}
    for kept in filter(None, (result, numbers)):
        text, problem, _ = judge_result(kept)
        if not problem:
            return result_line(text)
    return ""


def _list_runs(top: str) -> frozenset[str]:
    """Returns the names of the directories of runs in wandb's directory, `run-<time>-<id>` or
    `offline-run-...`.
    """
    directory = _open_directory(top)
    if directory is None:
        return frozenset()
    try:
        names = os.listdir(directory)
    finally:
        os.close(directory)
    return frozenset(it for it in names if it.startswith(("run-", "offline-run-")))


def _open_directory(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _is_live(version: str) -> bool:
    parts = version.split(".")[:2]
    return len(parts) == 2 and all(map(str.isdigit, parts)) and tuple(map(int, parts)) >= LIVE_FROM


def _was_read(path: str) -> bool:
    """Returns whether the file was read; False where the file system keeps no times of reading."""
    try:
        return os.stat(path).st_atime_ns > 0
    except OSError:
        return False


def _keeps_times(path: str) -> bool:
    """Returns whether the file system records reads; leaves the file as if unread."""
    try:
        with open(path, "rb") as file:
            file.read(1)
        seen = _was_read(path)
        os.utime(path, ns=(0, os.stat(path).st_mtime_ns))
    except OSError:
        return False
    return seen


def _write_file(path: str, text: str) -> None:
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def parameter_file(params: Mapping[str, Any]) -> str:
    """Returns the text of the file with the parameters. wandb reads it with PyYAML, so by YAML 1.1:
    there `3e-05` is a text, and `on` is true. Numbers are written as PyYAML writes them, and each
    text in quotes.
    """
    lines = [
        f'{_quote_text(name)}: {{"value": {_write_yaml(value)}}}\n'
        for name, value in params.items()
    ]
    return "".join(["wandb_version: 1\n", *lines])


def _write_yaml(value: Any) -> str:
    """Returns a JSON value in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _write_float(value)
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, dict):
        inside = (f"{_quote_text(str(name))}: {_write_yaml(it)}" for name, it in value.items())
        return "{" + ", ".join(inside) + "}"
    return "[" + ", ".join(map(_write_yaml, value)) + "]"


def _write_float(value: float) -> str:
    """Writes a point, also before an exponent: Python's `1e-05` would be a text."""
    if value != value:
        return ".nan"
    if value - value != 0:
        if value > 0:
            return ".inf"
        return "-.inf"
    digits, letter, exponent = repr(value).partition("e")
    if "." not in digits:
        digits += ".0"
    return digits + letter + exponent


def _quote_text(text: str) -> str:
    return '"' + "".join(map(_quote_character, text)) + '"'


def _quote_character(one: str) -> str:
    code = ord(one)
    if 32 <= code < 127:
        if one in '"\\':
            return "\\" + one
        return one
    if code < 256:
        return f"\\x{code:02x}"
    if code < 65536:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
