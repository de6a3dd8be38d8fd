"""The last step of a conversion: fields that the loader refuses are taken out again, and reported.

So a conversion is valid by construction, and carries more over as soon as the loader accepts more.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fleetctl.common.errors import UsageError
from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import find_faults
from fleetctl.manifest.problems import path_text
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.specs.kinds.registry import KINDS

FIXES_MAX = 50
TRIALS = 20  # of a search that would have no end
_METHOD = ("spec", "search", "method")


def fit_manifest(
    manifest: dict[str, Any],
    remarks: list[str],
    *,
    at: str,
    file: str,
) -> dict[str, Any]:
    """Returns the manifest without its refused fields. at: where its document begins, as remarks
    begin. Raises UsageError if no field remains.
    """
    tried = deepcopy(manifest)
    for _ in range(FIXES_MAX):
        found = find_faults(Document("-", to_yaml(tried), ""))
        if not found:
            return tried
        _fix_finding(
            tried,
            found[0],
            remarks,
            at,
            file,
        )
    raise UsageError(f"{file}: more than {FIXES_MAX} of its fields cannot be carried over")


def _fix_finding(
    manifest: dict[str, Any],
    wrong: Finding,
    remarks: list[str],
    at: str,
    file: str,
) -> None:
    where = path_text(wrong.subject or wrong.where)
    search = manifest["spec"].get("search") if KINDS[manifest["kind"]].searches else None
    if wrong.where[:3] == _METHOD and search is not None and search["method"] != "random":
        search["method"] = "random"
        remarks.append(f"{at}`{where}`{wrong.what}: it became `random`")
    elif search is not None and "never ends" in wrong.what and "trials" not in manifest["spec"]:
        manifest["spec"]["trials"] = TRIALS
        remarks.append(
            f"{at}`spec.trials: {TRIALS}` was added: a random search has no end of its own"
        )
    elif (
        len(wrong.where) > 1
        and wrong.where != ("spec", "template")
        and _remove_path(manifest, wrong.where)
    ):
        hint = f" ({wrong.fix})" if wrong.fix else ""
        remarks.append(f"{at}`{where}`{wrong.what}{hint}: it is left out")
    else:
        message = f"{file}: no valid manifest can be made: {where}{wrong.what}"
        raise UsageError(message, hint=wrong.fix)


def _remove_path(data: Any, path: Path) -> bool:
    """Removes the value at the path; returns False when it is absent."""
    *above, last = path
    for part in above:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del data[last]
    except (KeyError, IndexError, TypeError):
        return False
    return True
