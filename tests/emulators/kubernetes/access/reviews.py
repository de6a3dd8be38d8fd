"""What is created only to be answered: reviews of access and of who one is."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.access.rbac import Rbac, Wish
from tests.emulators.kubernetes.access.users import Users
from tests.emulators.kubernetes.api.call import Call, User
from tests.emulators.kubernetes.store.errors import ApiError

Object = dict[str, Any]
GROUPS = ("authorization.k8s.io", "authentication.k8s.io")


def answered(call: Call, body: Object, *, rbac: Rbac, users: Users) -> Object:
    """The review with its status."""
    spec = body.get("spec") or {}
    kind = call.found().kind
    if kind == "SelfSubjectAccessReview":
        status = _verdict(rbac, call.user, spec)
    elif kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
        who = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        status = _verdict(rbac, who, spec)
    elif kind == "SelfSubjectRulesReview":
        status = _rules(rbac, call.user, spec.get("namespace", ""))
    elif kind == "SelfSubjectReview":
        status = {"userInfo": _info(call.user)}
    elif kind == "TokenReview":
        found = users.of_token(spec.get("token", ""))
        status = {"authenticated": True, "user": _info(found)} if found else {"user": {}}
    else:
        raise ApiError(405, "the server does not allow this method on the requested resource")
    metadata = {"creationTimestamp": None, **body.get("metadata", {})}
    return {**body, "metadata": metadata, "status": status}


def _info(user: User) -> Object:
    info: Object = {"username": user.name, "groups": list(user.groups)}
    return {**info, "uid": user.uid} if user.uid else info


def _verdict(rbac: Rbac, user: User, spec: Object) -> Object:
    what, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if path:
        wish = Wish(path.get("verb", ""), path=path.get("path", ""))
    elif what:
        wish = Wish(
            what.get("verb", ""),
            what.get("group", ""),
            what.get("resource", ""),
            what.get("subresource", ""),
            what.get("namespace", ""),
            what.get("name", ""),
        )
    else:
        raise ApiError(
            422,
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or"
            " resourceAttributes must be specified",
        )
    allowed = rbac.allows(user, wish)
    return {"allowed": allowed, **({"reason": "RBAC: allowed"} if allowed else {})}


def _rules(rbac: Rbac, user: User, namespace: str) -> Object:
    found = [*rbac.rules(user, namespace)]
    resources = [
        {k: it[k] for k in ("verbs", "apiGroups", "resources", "resourceNames") if k in it}
        for it in found
        if it.get("resources")
    ]
    paths = [
        {k: it[k] for k in ("verbs", "nonResourceURLs")}
        for it in found
        if it.get("nonResourceURLs")
    ]
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
