"""A table of how each framework names and completes its checkpoints; the first match counts.

Pure over a directory as disk.py shows it: by names, sizes and the texts of markers and trackers,
never by the data. Called by prepare.py before a program starts, and by watch.py while it runs.

Facts (transformers 5.23, lightning 2.6.6, orbax-checkpoint 0.12.8, torch 2.13 DCP): Hugging Face
writes `trainer_state.json` last; Orbax and DCP rename when all is written, DCP its `.metadata`;
DeepSpeed, Megatron, verl and SkyRL write a file with the newest name once that is whole; a file of
Lightning is a zip, whose directory stands at its end.
"""

from __future__ import annotations

from fleetctl.guest.checkpoints.disk import DIRECTORY
from fleetctl.guest.task.text import parse_as_python

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any, Callable, Optional, Protocol

    class View(Protocol):
        """See disk.py."""

        def names(self, below: str = "") -> dict[str, int]: ...
        def size(self, name: str) -> int: ...
        def text(self, name: str) -> Optional[bytes]: ...
        def head(self, name: str, most: int) -> bytes: ...
        def tail(self, name: str, most: int) -> bytes: ...
        def sha256(self, name: str) -> str: ...


AUTO, NONE = "auto", "none"  # `auto` takes the first that is proven; `none` looks for no checkpoint
ALIKE = r"(?!events\.)[^.].*\d.*|\d.*|[^.].*\.(?:ckpt|pt|pth|pkl|bin|safetensors|npz|orbax)"
MARKER = "_COMPLETE.json"  # of our own format; written last, so that no rename is needed
MARKS = (MARKER, "trainer_state.json", ".metadata", "_CHECKPOINT_METADATA")  # in a directory
ASIDE, BACK = ".incomplete-", ".stepped-back-"  # begin the names of what was moved out of the way
HASHED_BYTES_MAX = 64 * 1024 * 1024  # of a file whose hash is looked at without `verify: Full`
ZIP_END = b"PK\x05\x06"
ZIP_END_BYTES = 22
ZIP_COMMENT_MAX = 65535
DIGITS_MAX = 15  # of a step; SQLite keeps 18
PICKLE_HEAD_BYTES = 64 * 1024  # Lightning writes its step as one of the first things


class Found:
    """One checkpoint. step: None when unknown; problem: why it is incomplete, or ""."""

    __slots__ = ("name", "problem", "step")

    def __init__(
        self,
        name: str,
        step: Optional[int],
        problem: str,
    ) -> None:
        self.name = name
        self.step = step
        self.problem = problem

    @property
    def complete(self) -> bool:
        return not self.problem and self.step is not None


class Format:
    """A framework's checkpoints.

    name: as in `checkpoint.format`; pattern: matches an entry and its step; directory: the entries
    are directories; judge: returns why an entry is incomplete; tracker: a file with the newest
    name, written as `tracked`; copy: a second entry of the newest, which scripts ask for by name.
    """

    def __init__(
        self,
        name: str,
        pattern: str,
        judge: Callable[[View, str], str],
        *,
        directory: bool = True,
        tracker: str = "",
        tracked: str = r"{step}",
        copy: str = "",
    ) -> None:
        self.name = name
        self.judge = judge
        self.directory = directory
        self.copy = copy
        self._pattern = pattern
        self.tracker = tracker
        self._tracked = tracked

    def match(self, name: str) -> Optional[re.Match[str]]:
        # Not at the top: a process from which tasks are forked would carry it for each.
        import re

        return re.fullmatch(self._pattern, name)

    def find(self, view: View) -> list[Found]:
        """Returns all checkpoints of this format, complete or not, the lowest step first; those
        with an unknown step come last.

        Where a tracker names the newest, entries beyond it were never finished.
        """
        newest = self.tracked_step(view) if self.tracker else None
        found = []
        for name, size in view.names().items():
            match = self.match(name)
            if match is None or (size == DIRECTORY) is not self.directory:
                continue
            step = _parse_step(view, name, match)
            problem = self.judge(view, name)
            if self.tracker and not problem and (newest is None or (step or 0) > newest):
                problem = f"`{self.tracker}` does not name it yet"
            found.append(Found(name, step, problem))
        found.sort(key=lambda one: (one.step is None, one.step or 0, one.name))
        return found

    def tracked_step(self, view: View) -> Optional[int]:
        """Returns the step that the tracker names; None without a tracker."""
        import re

        digits = re.findall(rb"\d+", view.text(self.tracker) or b"")
        if digits:
            return int(digits[-1])
        return None

    def tracker_text(self, found: Found) -> str:
        """Returns the tracker's text for which this checkpoint is the newest."""
        return self.tracker_of(found.name, found.step)

    def tracker_of(self, name: str, step: Optional[int]) -> str:
        """Returns the tracker's text for a checkpoint with this name; "" without a tracker."""
        if self.tracker:
            return self._tracked.format(step=step, name=name)
        return ""


def format_of(view: View, wanted: str = AUTO) -> Optional[Format]:
    """Returns the format with this name; for `auto` the first with a complete checkpoint, since
    names alone are shared by programs that mark no file. None without checkpoints, and for `none`.
    """
    if wanted == NONE:
        return None
    if wanted != AUTO:
        return next(one for one in FORMATS if one.name == wanted)
    names = view.names()
    # Two formats name their directories alike; their trackers differ.
    tracked = [one for one in FORMATS if one.tracker in names]
    every = (*tracked, *(one for one in FORMATS if one not in tracked))
    return next((one for one in every if any(it.complete for it in one.find(view))), None)


def list_unknown(view: View) -> list[str]:
    """Returns names that resemble those of checkpoints; called where no format is known."""
    import re

    return sorted(name for name in view.names() if re.fullmatch(ALIKE, name))


# -- when one is complete: "" or what is missing ---------------------------------------------------


def _check_huggingface(view: View, name: str) -> str:
    inside = view.names(name)
    if "checkpoint-is-incomplete.txt" in inside:
        return "its own marker says that it is incomplete"
    return _check_json(view, name, "trainer_state.json", inside)


def _check_lightning(view: View, name: str) -> str:
    """Checks the record that ends a zip: it names its directory, which lies just before it."""
    size = view.size(name)
    if size < ZIP_END_BYTES:
        if size <= 0:
            return "it is empty"
        return "it ends too soon"
    end = view.tail(name, ZIP_END_BYTES + ZIP_COMMENT_MAX)
    at = end.rfind(ZIP_END)
    record = end[at : at + ZIP_END_BYTES]
    if at < 0 or len(record) < ZIP_END_BYTES:
        return "it ends too soon"
    length = int.from_bytes(record[12:16], "little")
    offset = int.from_bytes(record[16:20], "little")
    large = 0xFFFFFFFF in (length, offset)  # then another record has the true numbers
    if large or offset + length <= size:
        return ""
    return "it ends too soon"


def _check_dcp(view: View, name: str) -> str:
    if ".metadata" in view.names(name):
        return ""
    return "`.metadata` is missing"


def _check_orbax(view: View, name: str) -> str:
    if not name.isdigit():
        return "it was never renamed to its step"
    inside = view.names(name)
    marks = ("commit_success.txt", "_CHECKPOINT_METADATA")
    if any(one in inside for one in marks):
        return ""
    return f"`{marks[1]}` is missing"


def _check_not_empty(view: View, name: str) -> str:
    if view.names(name):
        return ""
    return "it is empty"


def _check_skyrl(view: View, name: str) -> str:
    inside = view.names(name)
    missing = [one for one in ("trainer_state.pt", "data.pt") if one not in inside]
    if missing:
        return f"`{missing[0]}` is missing"
    return ""


def _ray_train(view: View, name: str) -> str:
    snapshot = view.text(RAY_SNAPSHOT) or b""
    if name.encode() in snapshot:
        return ""
    return f"`{RAY_SNAPSHOT}` does not name it yet"


def _check_fleetctl(view: View, name: str) -> str:
    """Checks that all files of the marker exist with their sizes."""
    problem = _check_json(view, name, MARKER, view.names(name))
    if problem:
        return problem
    files = read_marker(view, name)
    if files is None:
        return f"`{MARKER}` names no files"
    for path, size, _ in files:
        there = view.size(f"{name}/{path}")
        if there != size:
            what = "is missing" if there == DIRECTORY else f"has {there} bytes"
            return f"`{path}` {what}, and `{MARKER}` says {size}"
    return ""


def read_marker(view: View, name: str) -> Optional[list[tuple[str, int, str]]]:
    """Returns (path, bytes, SHA-256 or "") for each file of a marker; None for an invalid one."""
    try:
        marker: Any = parse_as_python((view.text(f"{name}/{MARKER}") or b"").decode())
        return [(str(path), int(one[0]), one[1] or "") for path, one in marker["files"].items()]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def find_damaged(
    view: View,
    name: str,
    *,
    whole: bool,
) -> str:
    """Returns the first file of a complete checkpoint of our own format whose hash is not the
    recorded one; "" when all are sound. whole: also large files, which takes as long as reading.
    """
    for path, size, digest in read_marker(view, name) or ():
        looked_at = digest and (whole or size <= HASHED_BYTES_MAX)
        if looked_at and view.sha256(f"{name}/{path}") != digest:
            return f"`{path}` is not what `{MARKER}` says: its SHA-256 is another one"
    return ""


def _check_json(
    view: View,
    name: str,
    file: str,
    inside: dict[str, int],
) -> str:
    if file not in inside:
        return f"`{file}` is missing"
    try:
        value = parse_as_python((view.text(f"{name}/{file}") or b"").decode())
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return ""
    return f"`{file}` is not whole"


def _parse_step(
    view: View,
    name: str,
    match: re.Match[str],
) -> Optional[int]:
    digits = "".join(filter(str.isdigit, match[1] or ""))[:DIGITS_MAX]
    if digits:
        return int(digits)
    if name.endswith(".ckpt"):
        return _pickled_step(view.head(name, PICKLE_HEAD_BYTES))
    return None


def _pickled_step(head: bytes) -> Optional[int]:
    """Reads `global_step` from the pickle that begins a Lightning file: its key, perhaps a memo of
    the key, and a whole number of 1, 2 or 4 bytes.
    """
    import re

    match = re.search(rb"global_step(?:q.|r....|h.|\x94)?(?:K(.)|M(..)|J(....))", head, re.DOTALL)
    if match is None:
        return None
    return int.from_bytes(match[match.lastindex or 1], "little")


RAY_SNAPSHOT = "checkpoint_manager_snapshot.json"
FORMATS = (
    Format("huggingface", r"checkpoint-(\d{1,15})", _check_huggingface),
    Format(
        "lightning",
        r"(?:.*\bstep=(\d{1,15}).*|[^.].*)\.ckpt",
        _check_lightning,
        directory=False,
        copy="last.ckpt",
    ),
    Format("dcp", r"step-(\d{1,15})", _check_dcp),
    Format("orbax", r"(\d{1,15})(?:\.orbax-checkpoint-tmp.*)?", _check_orbax),
    Format(
        "deepspeed",
        r"global_step(\d{1,15})",
        _check_not_empty,
        tracker="latest",
        tracked="{name}",
    ),
    Format(
        "megatron",
        r"(?:iter|global_step)_(\d{1,15})",
        _check_not_empty,
        tracker="latest_checkpointed_iteration.txt",
    ),
    Format("skyrl", r"global_step_(\d{1,15})", _check_skyrl, tracker="latest_ckpt_global_step.txt"),
    Format("ray-train", r"checkpoint_([\d_.-]{1,40})", _ray_train),
    Format("fleetctl", r"step-(\d{1,15})", _check_fleetctl),
)
FORMAT_NAMES = tuple(one.name for one in FORMATS)
