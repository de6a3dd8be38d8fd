"""Manifests for the server of a team, which has none of their files: writes the files into them,
and requests their plan.

Called before an apply or a plan over a server; the import loads the models of all specs.

Rows, searches and requirements become part of a manifest. Directories, packages and files of
tasks are sent by their content. The values of a Secret's files go the way of `fromEnv`: from this
process to the controller's memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.cli.team.remote_files import NamedPath, SourceUpload
from fleetctl.cli.team.server_fleet import ServerFleet
from fleetctl.common.errors import FleetctlError, UsageError
from fleetctl.common.remote import RemoteFleet
from fleetctl.common.text import escape_line
from fleetctl.daemon.client.socket_client import raise_refusal
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.includes import IncludedFiles, include_files
from fleetctl.manifest.loader import load_manifests
from fleetctl.manifest.rendering.render import ManifestDraft, render_drafts
from fleetctl.specs.kinds.registry import kind_called
from fleetctl.specs.values.packages import LOCAL

if TYPE_CHECKING:
    from fleetctl.apply.plan.plan_report import PlanReport


Reply = Mapping[str, object]

NOWHERE = "/"


def request_plan(
    remote: RemoteFleet,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
) -> Reply:
    """Returns the reply, which has a plan also where an apply would be refused. Raises
    RequestRefused where there can be none."""
    made = with_files_sent(documents, remote, screen.talk).documents
    sent = [document._asdict() for document in made]
    reply = remote.send({"verb": "plan", "documents": sent, **order})
    if not isinstance(reply.get("plan"), dict):
        raise_refusal(reply)
    return reply


def request_report(
    remote: RemoteFleet,
    documents: Sequence[Document],
    order: Mapping[str, object],
    screen: Screen,
) -> tuple[PlanReport, Reply]:
    """Returns the plan as this process shows its own, and the reply. Raises FleetctlError where
    the server's version has another form of it."""
    from fleetctl.apply.plan.document import load_report

    reply = request_plan(remote, documents, {**order, "report": True}, screen)
    found = load_report(reply.get("report"))
    if found is None:
        raise FleetctlError(
            f"the plan of {remote.url} has a form that this version does not know",
            hint="`fleetctl version` shows both versions; bring the older one up to the newer",
        )
    return found, reply


def warn_and_refuse(reply: Reply, screen: Screen) -> None:
    """Prints the warnings of a plan. Raises RequestRefused for what an apply would be refused
    for."""
    warnings = reply.get("warnings")
    for warning in warnings if isinstance(warnings, list) else ():
        screen.warn(escape_line(str(warning)))
    if not reply.get("ok"):
        raise_refusal(reply)


class SentDocuments(NamedTuple):
    """Documents that name no file of this machine. values: of variables, from files of Secrets."""

    documents: list[Document]
    values: Mapping[str, str]


def with_files_sent(
    documents: Sequence[Document],
    remote: RemoteFleet,
    talk: Callable[[str], None],
) -> SentDocuments:
    """Returns the documents as the server gets them. Raises ManifestErrors and UsageError for
    files that are not there or cannot be sent; a text that is no manifest goes as it is, for the
    server to explain."""
    for document in documents:
        if document.refused:
            raise UsageError(f"{document.path}: {document.refused}", hint=document.hint)
    rendered = render_drafts(documents)
    if rendered.problems or not all(map(_is_manifest, rendered.drafts)):
        return SentDocuments([it._replace(dir=NOWHERE) for it in documents], {})
    assert isinstance(remote, ServerFleet)
    upload = SourceUpload(remote.client, talk)
    values: dict[str, str] = {}
    made: list[Document] = []
    for draft in rendered.drafts:
        data, origin = draft.root.value, draft.written.document
        paths, included = _include_files(data, origin)
        if included.findings or included.problems:
            load_manifests(documents)
            raise UsageError(f"{origin.path}: a file that it names cannot be read")
        values |= _take_values(data)
        sent = {it.name: upload.add(origin.path, it) for it in paths}
        sent |= upload.add_files(origin.path, included.inputs)
        made.append(Document(origin.path, json.dumps(data), NOWHERE, sent=sent))
    upload.send()
    return SentDocuments(made, values)


def _is_manifest(draft: ManifestDraft) -> bool:
    data = draft.root.value
    return isinstance(data, dict) and kind_called(data.get("kind")) is not None


def _include_files(
    data: dict[str, Any], document: Document
) -> tuple[list[NamedPath], IncludedFiles]:
    """Writes files into a manifest; returns those that are to be sent beside it."""
    spec = data.get("spec")
    inner = spec.get("template") if isinstance(spec, dict) else None
    kind = kind_called(data.get("kind"))
    if kind is not None and kind.starts and isinstance(inner, dict):
        paths, included = _include_files(inner, document)
        return [it._replace(where=f"spec.template.{it.where}") for it in paths], included
    included = include_files(data, document)
    spec = data.get("spec")
    if not isinstance(spec, dict):
        return [], included
    return list(_list_paths(spec, included.origin)), included


def _list_paths(spec: Mapping[str, Any], origin: str) -> Iterator[NamedPath]:
    """Yields the directories and packages of a spec. origin: where its `source.path` leads."""
    for where, holder in _list_holders(spec):
        source = holder.get("source")
        if isinstance(source, dict) and origin and isinstance(source.get("path"), str):
            exclude = source.get("exclude")
            yield NamedPath(
                f"{where}.source.path",
                source["path"],
                origin,
                tuple(map(str, exclude if isinstance(exclude, list) else ())),
                source.get("followLinks") is True,
            )
        image = holder.get("image")
        listed = image.get("pip") if isinstance(image, dict) else None
        for at, entry in enumerate(listed if isinstance(listed, list) else ()):
            package = LOCAL.fullmatch(entry) if isinstance(entry, str) else None
            if package is not None:
                path = package["path"]
                yield NamedPath(f"{where}.image.pip[{at}]", path, path)
        index = image.get("pipIndex") if isinstance(image, dict) else None
        links = index.get("findLinks") if isinstance(index, dict) else None
        for at, link in enumerate(links if isinstance(links, list) else ()):
            if isinstance(link, str) and link.startswith(("/", "file:")):
                raise UsageError(
                    f"{where}.image.pipIndex.findLinks[{at}] is `{link}`, and the server has no"
                    " such directory",
                    hint="name the packages of it in `image.pip`, by their files: they are sent",
                )


def _list_holders(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    parts = [("spec", spec), ("spec.template", spec.get("template"))]
    for key in ("stages", "groups"):
        named = spec.get(key)
        named = named if isinstance(named, list) else []
        parts += [(f"spec.{key}[{at}]", it) for at, it in enumerate(named)]
    yield from ((where, it) for where, it in parts if isinstance(it, dict))


def _take_values(data: dict[str, Any]) -> dict[str, str]:
    """Returns the values in the files of a Secret, whose variables are `fromEnv` from now on."""
    spec = data.get("spec")
    if data.get("kind") != "Secret" or not isinstance(spec, dict):
        return {}
    named = spec.get("fromFile")
    if not isinstance(named, dict) or not isinstance(spec.get("fromEnv", []), list):
        return {}
    from fleetctl.engine.execute.secrets import read_secret_file

    name = str((data.get("metadata") or {}).get("name"))
    values = {str(it): read_secret_file(name, str(path)) for it, path in named.items()}
    spec["fromEnv"] = [*spec.get("fromEnv", []), *values]
    del spec["fromFile"]
    return values
