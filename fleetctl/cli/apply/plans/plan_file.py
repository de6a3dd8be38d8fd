"""Plans in files: written by `plan --out` and read by `apply FILE`.

A file holds the manifests as they were read and the state of every object, so that the apply makes
the shown changes, or refuses. It names secrets as manifests do, and holds no value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.apply.request import document_of
from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.manifest.files.documents import SET, Document, is_address, read_document
from fleetctl.tracking.written_files import note_written

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.stores.base import ReadableStore

FORM = "fleetctl.dev/savedplan/v1alpha1"
BYTES_MAX = 256 * 1024 * 1024  # as much as one request may hold


class SavedPlan(NamedTuple):
    documents: list[Document]
    order: Mapping[str, object]  # with expected versions and approved losses


def save_plan(
    path: str,
    stored: ReadableStore,
    documents: Sequence[Document],
    changes: Sequence[Change],
    order: Mapping[str, object],
) -> None:
    """Writes the plan to a file that only its owner can read: a manifest may hold confidential
    text."""
    from fleetctl.apply.consent import list_approvable
    from fleetctl.apply.request import digests_of, version_of

    kept = {
        "form": FORM,
        "documents": [document._asdict() for document in documents],
        "files": {it.path: _digest_text(it.text) for it in documents if _is_file(it)},
        "order": dict(order),
        "expected": {
            "store": stored.store_id,
            "objects": {change.key: version_of(change) for change in changes},
            "wishes": digests_of(changes),
        },
        "approved": list_approvable(changes),
    }
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(kept, stream, indent=1)
    except OSError as error:
        raise UsageError(f"the plan cannot be kept in `{path}`: {error.strerror}") from None
    note_written([path])


def load_plan(path: str) -> SavedPlan:
    """Reads a plan. Raises Conflict when a file in it has changed since, UsageError for other
    files."""
    kept = _read_plan(path)
    documents = [document_of({"path": "", "dir": "", **it}) for it in kept["documents"]]
    for name, digest in kept["files"].items():
        document = next(it for it in documents if it.path == name)
        there = Path(document.dir) / Path(name).name
        now = read_document(str(there))
        if now.refused or _digest_text(now.text) != digest:
            how = "cannot be read any more" if now.refused else "has changed"
            raise Conflict(
                f"this plan is stale: `{name}` {how}",
                hint="make the plan again",
            )
    order = {**kept["order"], "expected": kept["expected"], "approved": kept["approved"]}
    return SavedPlan(documents, order)


def _read_plan(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            kept = json.loads(stream.read(BYTES_MAX))
    except FileNotFoundError:
        raise NotFound(f"there is no file `{path}`") from None
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        kept = None
    if not isinstance(kept, dict) or kept.get("form") != FORM:
        raise UsageError(
            f"`{path}` is not a plan of `fleetctl plan --out`",
            hint=f"a manifest is applied with `fleetctl apply -f {path}`",
        )
    return kept


def _is_file(document: Document) -> bool:
    """Returns false for standard input, an address or a flag: the plan holds their text."""
    return document.path != "-" and document.role != SET and not is_address(document.path)


def _digest_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
