"""One request, read: what it wants from which resource, and who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.resources import Resource, Resources

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
TRUE = ("1", "true", "True", "TRUE", "t")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Call:
    """resource is None for a path that names none; `parts` are its segments then."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    parts: tuple[str, ...]
    verb: str = ""
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    resource: Resource | None = None
    user: User = User("")
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in TRUE

    @property
    def accept(self) -> str:
        return self.headers.get("Accept", "")

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip()

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def manager(self) -> str:
        """Whose the fields are: as said, else the program's name."""
        agent = self.headers.get("User-Agent", "").partition("/")[0].split(" ")[0]
        return self.query.get("fieldManager") or agent or "unknown"

    def found(self) -> Resource:
        assert self.resource is not None
        return self.resource

    def number(self, name: str) -> int | None:
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise ApiError(400, f"invalid {name}: {text!r}") from error


def read(
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    resources: Resources,
) -> Call:
    """As the server's request info; an unknown resource has `plural` and no `resource`."""
    parts = tuple(it for it in path.split("/") if it)
    call = Call(method, path, query, headers, parts, verb=VERBS.get(method, method.lower()))
    if parts[:1] == ("api",) and len(parts) > 2:
        call.version, rest = parts[1], parts[2:]
    elif parts[:1] == ("apis",) and len(parts) > 3:
        call.group, call.version, rest = parts[1], parts[2], parts[3:]
    else:
        return call
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        call.namespace, rest = rest[1], rest[2:]
    call.plural, rest = rest[0], rest[1:]
    if rest:
        call.name, rest = rest[0], rest[1:]
    call.subresource = "/".join(rest)
    call.resource = resources.find(call.group, call.version, call.plural)
    if call.resource is not None and call.resource.key == ("", "namespaces") and call.name:
        call.namespace = call.name
    if not call.name:
        if call.verb == "get":
            call.verb = "watch" if call.flag("watch") else "list"
        elif call.verb == "delete":
            call.verb = "deletecollection"
    return call
