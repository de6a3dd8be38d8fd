"""Checkpoints of a fleetctl TrainingRun from its own program: one file, standard library only.

    import fleetctl_checkpoint as checkpoint

    start = checkpoint.latest()                # a directory, or None
    ...
    with checkpoint.saving(step) as directory:  # complete when the block ends
        torch.save(model.state_dict(), directory / "model.pt")
    if checkpoint.stop_requested():             # TERM was seen: save, then leave
        sys.exit(143)

A checkpoint is `step-NNNNNNNN/` below $FLEETCTL_CHECKPOINT; `_COMPLETE.json` is written last and
names every file with its size, so that nothing has to be renamed and a kill in between is seen.
With several processes each writes its own files, and one of them calls `saving` last, after a
barrier of the trainer's own.
"""

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

MARKER = "_COMPLETE.json"
HASHED_BYTES_MAX = 64 * 1024 * 1024  # the hash of a larger file would hold up the training

_stop = threading.Event()
_stops = ""  # the run that set it: tasks that share a process each have a signal of their own


def latest() -> Optional[Path]:
    """Returns the newest complete checkpoint at the start of this attempt, or None."""
    path = os.environ.get("FLEETCTL_RESUME_FROM")
    if path:
        return Path(path)
    return None


@contextlib.contextmanager
def saving(step: int) -> Iterator[Path]:
    """Yields a directory for the files of this step, which becomes a checkpoint when the block ends
    without an exception. Raises RuntimeError where the TrainingRun has no `checkpoint`.
    """
    place = os.environ.get("FLEETCTL_CHECKPOINT")
    if not place:
        raise RuntimeError("FLEETCTL_CHECKPOINT is not set: the TrainingRun has no `checkpoint`")
    directory = Path(place) / ("step-%08d" % step)
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    if marker.exists():
        marker.unlink()  # during a rewrite it is not complete
    yield directory
    files = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path != marker:
            files[path.relative_to(directory).as_posix()] = _settle_file(path)
    complete: Dict[str, Any] = {
        "format": 1,
        "step": step,
        "at": time.time(),
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        "files": files,
    }
    with open(marker, "w", encoding="utf-8") as file:
        file.write(json.dumps(complete))
        file.flush()
        _sync_handle(file.fileno())


def stop_requested() -> bool:
    """Returns whether the run was asked to end. From the first call on TERM no longer ends the
    program, which has `signalBeforeStopSeconds` to save and leave. The first call belongs into the
    main thread.
    """
    global _stop, _stops
    run = "%s/%s" % (os.environ.get("FLEETCTL_RUN"), os.environ.get("FLEETCTL_ATTEMPT"))
    if _stops != run:
        stop = threading.Event()
        _stop = stop
        _stops = run
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return _stop.is_set()


def _settle_file(path: Path) -> List[Any]:
    """Returns [bytes, SHA-256 or None] of a file, and makes it durable."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        _sync_handle(file.fileno())
        if size > HASHED_BYTES_MAX:
            return [size, None]
        return [size, hashlib.sha256(file.read()).hexdigest()]


def _sync_handle(handle: int) -> None:
    """Syncs a file or directory. Volumes that are not disks may refuse: closing the file counts."""
    with contextlib.suppress(OSError):
        os.fsync(handle)
