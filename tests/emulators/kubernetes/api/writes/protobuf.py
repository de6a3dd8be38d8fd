"""Bodies in protobuf, which kubectl and helm send of a few built-in kinds.

Only those kinds are read, with the numbers of the fields that clients set; a field that is not here
is refused rather than lost. Answers are always JSON, which the same clients accept.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.store.errors import ApiError

MAGIC = b"k8s\x00"
TYPE = "application/vnd.kubernetes.protobuf"
# Of a field: name and type. Types: s string, y bytes, i integer, t true or false, - not wanted, or
# the name of a message; [] before it is a list, {} a map by strings.
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {}


def _message(name: str, fields: str) -> None:
    rows = (it.split(":") for it in fields.split())
    MESSAGES[name] = {int(number): (field, kind) for number, field, kind in rows}


_message(
    "Meta",
    "1:name:s 2:generateName:s 3:namespace:s 4:selfLink:- 5:uid:s 6:resourceVersion:s"
    " 7:generation:- 8:creationTimestamp:- 9:deletionTimestamp:- 10:deletionGracePeriodSeconds:-"
    " 11:labels:{}s 12:annotations:{}s 13:ownerReferences:[]Owner 14:finalizers:[]s"
    " 17:managedFields:-",
)
_message("Owner", "1:kind:s 3:name:s 4:uid:s 5:apiVersion:s 6:controller:t 7:blockOwnerDeletion:t")
_message("Secret", "1:metadata:Meta 2:data:{}y 3:type:s 4:stringData:{}s 5:immutable:t")
_message("ConfigMap", "1:metadata:Meta 2:data:{}s 3:binaryData:{}y 4:immutable:t")
_message("ServiceAccount", "1:metadata:Meta")
_message("Namespace", "1:metadata:Meta 2:spec:- 3:status:-")
_message("SelfSubjectAccessReview", "1:metadata:Meta 2:spec:Access 3:status:-")
_message("Access", "1:resourceAttributes:Attributes 2:nonResourceAttributes:Path")
_message(
    "Attributes",
    "1:namespace:s 2:verb:s 3:group:s 4:version:s 5:resource:s 6:subresource:s 7:name:s",
)
_message("Path", "1:path:s 2:verb:s")
_message("SelfSubjectRulesReview", "1:metadata:Meta 2:spec:Rules 3:status:-")
_message("Rules", "1:namespace:s")
_message("SelfSubjectReview", "1:metadata:Meta 2:status:-")
_message("TokenRequest", "1:metadata:Meta 2:spec:Token 3:status:-")
_message("Token", "1:audiences:[]s 2:boundObjectRef:- 4:expirationSeconds:i")
_message("Eviction", "1:metadata:Meta 2:deleteOptions:DeleteOptions")
_message(
    "DeleteOptions",
    "1:gracePeriodSeconds:i 2:preconditions:Preconditions 3:orphanDependents:t"
    " 4:propagationPolicy:s 5:dryRun:[]s",
)
_message("Preconditions", "1:uid:s 2:resourceVersion:s")
_message("Role", "1:metadata:Meta 2:rules:[]Rule")
_message("ClusterRole", "1:metadata:Meta 2:rules:[]Rule 3:aggregationRule:-")
_message(
    "Rule", "1:verbs:[]s 2:apiGroups:[]s 3:resources:[]s 4:resourceNames:[]s 5:nonResourceURLs:[]s"
)
_message("RoleBinding", "1:metadata:Meta 2:subjects:[]Subject 3:roleRef:RoleRef")
MESSAGES["ClusterRoleBinding"] = MESSAGES["RoleBinding"]
_message("Subject", "1:kind:s 2:apiGroup:s 3:name:s 4:namespace:s")
_message("RoleRef", "1:apiGroup:s 2:kind:s 3:name:s")
_message("Job", "1:metadata:Meta 2:spec:JobSpec 3:status:-")
_message(
    "JobSpec",
    "1:parallelism:i 2:completions:i 3:activeDeadlineSeconds:i 6:template:Template 7:backoffLimit:i"
    " 8:ttlSecondsAfterFinished:i 9:completionMode:s 10:suspend:t",
)
_message("Template", "1:metadata:Meta 2:spec:PodSpec")
_message(
    "PodSpec",
    "2:containers:[]Container 3:restartPolicy:s 4:terminationGracePeriodSeconds:i 6:dnsPolicy:s"
    " 7:nodeSelector:{}s 8:serviceAccountName:s 9:serviceAccount:s 19:schedulerName:s",
)
_message(
    "Container",
    "1:name:s 2:image:s 3:command:[]s 4:args:[]s 5:workingDir:s 7:env:[]Variable"
    " 14:imagePullPolicy:s",
)
_message("Variable", "1:name:s 2:value:s")
_message("Envelope", "1:type:Type 2:raw:y 3:contentEncoding:s 4:contentType:s")
_message("Type", "1:apiVersion:s 2:kind:s")


def decoded(data: bytes) -> dict[str, Any]:
    """The object, with kind and apiVersion. Raises ApiError 415."""
    if not data.startswith(MAGIC):
        raise ApiError(400, "provided data does not appear to be a protobuf message")
    envelope = _read(data[len(MAGIC) :], "Envelope")
    kind = envelope["type"].get("kind", "")
    if kind not in MESSAGES:
        raise _unknown(kind)
    return {**envelope["type"], **_read(base64.b64decode(envelope.get("raw", "")), kind)}


def _unknown(what: str) -> ApiError:
    return ApiError(
        415,
        f"the body of the request was in an unknown format ({what} in protobuf is not read here)"
        " - accepted media types include: application/json, application/yaml",
    )


def _read(data: bytes, message: str) -> dict[str, Any]:
    fields, found = MESSAGES[message], {}
    for number, raw in _fields(data):
        name, kind = fields.get(number, ("", ""))
        if not name and raw not in (b"", 0):
            raise _unknown(f"field {number} of {message}")
        if not name or kind == "-":
            continue
        if kind.startswith("{}"):
            assert isinstance(raw, bytes)
            entry = dict(_fields(raw))
            key = entry.get(1, b"")
            assert isinstance(key, bytes)
            found.setdefault(name, {})[key.decode()] = _value(entry.get(2, b""), kind[2:])
        elif kind.startswith("[]"):
            found.setdefault(name, []).append(_value(raw, kind[2:]))
        else:
            found[name] = _value(raw, kind)
    # What is not set is there as its zero, too.
    return {k: v for k, v in found.items() if v != "" or k == "value"}


def _value(raw: bytes | int, kind: str) -> Any:
    if isinstance(raw, int):
        return bool(raw) if kind == "t" else raw - (1 << 64) if raw >> 63 else raw
    if kind == "s":
        return raw.decode()
    return base64.b64encode(raw).decode() if kind == "y" else _read(raw, kind)


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        if tag & 7 == 0:
            value, at = _number(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = _number(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise _unknown(f"wire type {tag & 7}")


def _number(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
