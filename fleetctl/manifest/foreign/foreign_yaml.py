"""The first and the last step of a conversion: YAML of other tools is read into plain data within
limits, and fields that the loader refuses are taken out again, and reported.

Scalars mean the same as in YAML 1.2 and our own manifests: `1e-4` is a number and `no` a text.
W&B's sweep files are read as `searchFrom` reads them. As refused fields are taken out, a
conversion is valid by construction, and carries more over as soon as the loader accepts more.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

from fleetctl.common.errors import UsageError
from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import find_faults
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import ManifestErrors, path_text
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.manifest.yaml.wandb import WANDB
from fleetctl.specs.kinds.registry import KINDS

VALUES_MAX = 200_000  # counts the repetitions of anchors, so that no file is a bomb
DEPTH_MAX = 64
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"

FIXES_MAX = 50
TRIALS = 20  # of a search that would have no end
_METHOD = ("spec", "search", "method")


class ForeignDocument(NamedTuple):
    """One document as plain data. lines: where each of its fields stands, by its path, such as
    `resources.any_of[0]`; the document itself is the path without a name.
    """

    data: Any
    lines: Mapping[str, int]


def parse_foreign_yaml(text: str, file: str) -> list[ForeignDocument]:
    """Parses a text. Raises UsageError for text that is not YAML, or too large."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
        building = _TreeBuilder()
        found = []
        for node in nodes:
            building.lines = {"": node.start_mark.line + 1}
            found.append(ForeignDocument(building.value(node, 0), building.lines))
        return found
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"{file}{where}: this is not YAML: {problem}") from error
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error


def sweep_files(text: str, file: str) -> list[ForeignDocument]:
    """The same of W&B's, by its YAML. Raises ManifestErrors."""
    reading = read_yaml(file, text, dialect=WANDB)
    if reading.problems:
        raise ManifestErrors(reading.problems)
    lines = [it.lines for it in parse_foreign_yaml(text, file)]
    if len(lines) != len(reading.roots):
        lines = [{"": root.position[0]} for root in reading.roots]
    return [ForeignDocument(root.value, at) for root, at in zip(reading.roots, lines, strict=True)]


class _TreeBuilder:
    """Builds a tree, and counts its values."""

    def __init__(self) -> None:
        self._built = 0
        self.lines: dict[str, int] = {}

    def value(
        self,
        node: yaml.Node,
        depth: int,
        path: str = "",
    ) -> Any:
        self._built += 1
        if self._built > VALUES_MAX or depth > DEPTH_MAX:
            raise ValueError(f"it holds more than {VALUES_MAX:,} values, or is nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            found = []
            for number, one in enumerate(node.value):
                below = f"{path}[{number}]"
                self.lines[below] = one.start_mark.line + 1
                found.append(self.value(one, depth + 1, below))
            return found
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth, path)
        assert isinstance(node, yaml.ScalarNode)
        if node.style:
            return node.value
        return resolve_scalar(node.value)

    def _mapping(
        self,
        node: yaml.MappingNode,
        depth: int,
        path: str,
    ) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError("a key is a collection, which no format has")
            below = f"{path}.{key.value}" if path else key.value
            if key.value == _MERGE and not key.style:
                below = path
            else:
                self.lines[below] = key.start_mark.line + 1
            built = self.value(value, depth + 1, below)
            if key.value != _MERGE or key.style:
                own[key.value] = built
                continue
            for one in built if isinstance(built, list) else [built]:
                merged = {**(one if isinstance(one, dict) else {}), **merged}
        return {**merged, **own}


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
