"""`fleetctl edit`: opens a stored object in an editor, and stores the saved text as the new
spec."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

from fleetctl.cli.change.set import add_losses, store_change
from fleetctl.cli.command.flags import Parser, add_override
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View
from fleetctl.views.store_reading import must_find, open_reading

EDITORS = ("FLEETCTL_EDITOR", "VISUAL", "EDITOR")
DEFAULT_EDITOR = "vi"
HEADER = (
    "# {key}, as it is stored. Save and leave to change it; leave it as it is to change nothing.\n"
    "# The next apply of its file brings back what the file says, and leaves the rest alone.\n"
)
# The program's own annotations; an edit leaves them unchanged.
OWN_PREFIX = "fleetctl.dev/"


PAGE = """\
KIND/NAME | KIND NAME

Change a stored object in your editor ($FLEETCTL_EDITOR, $VISUAL, $EDITOR or vi),
checked as an apply would. What cannot be stored is kept in a file, which is named.

examples:
  fleetctl edit job/chunks
  EDITOR='code --wait' fleetctl edit sweep/lr
  fleetctl edit tr/pretrain --rollout FinishRunning

exit codes:
  0 done or unchanged, 1 the editor failed, 2 wrong usage or value,
  3 running work would be lost, 4 no such object, 5 conflict
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("object", metavar="KIND/NAME", help="object to edit")
    add_losses(made)
    add_override(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    wanted = parse_target(args.object, args.namespace)
    with open_reading(find_state_dir()) as reading:
        seen = must_find(wanted, reading)
        before = _build_document(seen)
    text = HEADER.format(key=escape_line(seen.key)) + _render_yaml(before)
    path = _write_temporary(seen, text)
    try:
        _let_edit(path)
        after = _read_edited(path, seen)
        if after == before:
            screen.talk(f"{escape_line(seen.key)} unchanged; nothing was stored")
        else:
            request: dict[str, object] = {
                "verb": "set",
                "key": seen.key,
                "generation": seen.resource.generation,
                "spec": after["spec"],
                "yes": args.yes,
                **({"override": True} if args.override else {}),
                **{name: _diff_metadata(before, after, name) for name in ("labels", "annotations")},
            }
            store_change({**request, "rollout": args.rollout} if args.rollout else request, screen)
    except FleetctlError as error:
        if path.read_text(encoding="utf-8", errors="replace") == text:
            path.unlink()
        else:
            kept = f"your text is kept in {path}"
            error.hint = f"{error.hint}; {kept}" if error.hint else kept
        raise
    path.unlink()
    return 0


def _build_document(seen: View) -> dict[str, Any]:
    """Returns the fields that a user may change, as a manifest has them."""
    resource = seen.resource
    metadata: dict[str, Any] = {"name": resource.name}
    if seen.kind.namespaced:
        metadata["namespace"] = resource.namespace
    if resource.labels:
        metadata["labels"] = dict(resource.labels)
    fields = {
        key: text for key, text in resource.annotations.items() if not key.startswith(OWN_PREFIX)
    }
    if fields:
        metadata["annotations"] = fields
    return {
        "apiVersion": API_VERSION,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": dict(seen.shown_spec()),
    }


def _render_yaml(document: dict[str, Any]) -> str:
    from fleetctl.manifest.yaml.emit import to_yaml

    return to_yaml(document)


def _write_temporary(seen: View, text: str) -> Path:
    """Returns a file that only its owner can read."""
    import tempfile

    handle, name = tempfile.mkstemp(
        prefix=f"fleetctl-{seen.kind.name.lower()}-{seen.resource.name}-", suffix=".yaml"
    )
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    return Path(name)


def _let_edit(path: Path) -> None:
    import subprocess

    editor = next((os.environ[name] for name in EDITORS if os.environ.get(name)), DEFAULT_EDITOR)
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FleetctlError(
            f"the editor `{editor}` cannot be started: {why}",
            hint="set $EDITOR, or change one field with `fleetctl set`",
        ) from None
    if done.returncode != 0:
        raise FleetctlError(f"the editor `{editor}` exited with code {done.returncode}")


def _read_edited(path: Path, seen: View) -> dict[str, Any]:
    """Reads the edited file as one document. Raises ManifestErrors, and UsageError for another
    object. The content is checked where it is stored.
    """
    from fleetctl.manifest.files.documents import read_documents
    from fleetctl.manifest.problems import ManifestErrors, ManifestProblem
    from fleetctl.manifest.yaml.reader import read_yaml

    (document,) = read_documents([str(path)])
    if document.refused:
        raise ManifestErrors(
            [
                ManifestProblem(
                    document.path,
                    0,
                    0,
                    document.refused,
                    document.hint,
                )
            ]
        )
    reading = read_yaml(document.path, document.text)
    if reading.problems:
        raise ManifestErrors(reading.problems)
    found = reading.roots[0].value if len(reading.roots) == 1 else None
    if not isinstance(found, dict):
        raise UsageError("the edited file must hold one document")
    metadata = found.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    identity = (
        found.get("kind"),
        about.get("name"),
        about.get("namespace", seen.resource.namespace),
    )
    own = (seen.kind.name, seen.resource.name, seen.resource.namespace)
    if identity != own:
        raise UsageError(
            f"the edited document is no longer of {escape_line(seen.key)}",
            hint="kind, name and namespace stay; `fleetctl apply` makes another object",
        )
    if not isinstance(found.get("spec"), dict):
        raise UsageError("the edited document has no `spec`")
    return found


def _diff_metadata(
    before: dict[str, Any],
    after: dict[str, Any],
    name: str,
) -> dict[str, str | None]:
    """Returns the labels to set, and with None those to remove."""
    old, new = (_check_texts(it["metadata"].get(name), name) for it in (before, after))
    gone: dict[str, str | None] = {key: None for key in old if key not in new}
    return gone | {key: text for key, text in new.items() if old.get(key) != text}


def _check_texts(value: object, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(it, str) for it in value.values()):
        raise UsageError(f"metadata.{name} must be names with texts", hint="quote numbers")
    return {str(key): text for key, text in value.items()}
