"""Plans in files: what `plan --out` keeps and what `apply FILE` takes up again.

A file holds the manifests as they were read and how every object stood, so that the apply does what
was shown, or refuses. It names secrets as manifests do, and holds no value of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.errors import Conflict, NotFound, UsageError
from fleetctl.manifest.files.documents import SET, Document, is_address, read_documents
from fleetctl.tracking.written import note_written

if TYPE_CHECKING:
    from fleetctl.apply.change import Change
    from fleetctl.stores.base import Stored

FORM = "fleetctl.dev/savedplan/v1alpha1"
BYTES_MAX = 256 * 1024 * 1024  # as much as one request may hold


class SavedPlan(NamedTuple):
    documents: list[Document]
    order: Mapping[str, object]  # with what is expected and approved


def save(
    path: str,
    stored: Stored,
    documents: Sequence[Document],
    changes: Sequence[Change],
    order: Mapping[str, object],
) -> None:
    """Write the plan where nobody else reads it: a manifest may hold what is not for everybody."""
    from fleetctl.apply.consent import approvable
    from fleetctl.apply.request.options import digests_of, version_of

    kept = {
        "form": FORM,
        "documents": [document._asdict() for document in documents],
        "files": {it.path: _digest(it.text) for it in documents if _is_file(it)},
        "order": dict(order),
        "expected": {
            "store": stored.store_id,
            "objects": {change.key: version_of(change) for change in changes},
            "wishes": digests_of(changes),
        },
        "approved": approvable(changes),
    }
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(kept, stream, indent=1)
    except OSError as error:
        raise UsageError(f"the plan cannot be kept in `{path}`: {error.strerror}") from None
    note_written([path])


def load(path: str) -> SavedPlan:
    """Raises Conflict when a file of it is another by now, UsageError when it is not a plan."""
    kept = _read(path)
    documents = [
        Document(*(str(it.get(name, "")) for name in Document._fields)) for it in kept["documents"]
    ]
    for name, digest in kept["files"].items():
        document = next(it for it in documents if it.path == name)
        there = Path(document.dir) / Path(name).name
        (now,) = read_documents([str(there)])
        if now.refused or _digest(now.text) != digest:
            how = "cannot be read any more" if now.refused else "has changed"
            raise Conflict(
                f"this plan is stale: `{name}` {how}",
                hint="make the plan again",
            )
    order = {**kept["order"], "expected": kept["expected"], "approved": kept["approved"]}
    return SavedPlan(documents, order)


def _read(path: str) -> dict[str, dict]:  # type: ignore[type-arg]
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
    """Not standard input, an address or a flag: what was read there stands in the plan."""
    return document.path != "-" and document.role != SET and not is_address(document.path)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
