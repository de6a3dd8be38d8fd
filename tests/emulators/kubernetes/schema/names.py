"""What names, labels and annotations may look like, and generated names."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

from tests.emulators.kubernetes.schema.validation import Cause, cause, invalid_value, required
from tests.emulators.kubernetes.store.resources import Resource

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words come out
GENERATED_MAX = 58
ANNOTATIONS_BYTES_MAX = 256 * 1024
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used"
    f" for validation is '{_LABEL}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
# Names that are DNS labels, and those that are any path segment.
_LABELS = {"namespaces", "services"}
_SEGMENTS = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}


def suffix(length: int = 5) -> str:
    return "".join(random.choices(SUFFIX, k=length))


def generated(prefix: str) -> str:
    return prefix[:GENERATED_MAX] + suffix()


def metadata_problems(resource: Resource, metadata: dict[str, Any]) -> Iterator[Cause]:
    name = metadata.get("name") or ""
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from name_problems(resource.plural, name)
    yield from label_problems("metadata.labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _key_problems("metadata.annotations", key)
    if sum(len(k) + len(v) for k, v in annotations.items()) > ANNOTATIONS_BYTES_MAX:
        detail = f"may not be more than {ANNOTATIONS_BYTES_MAX} bytes"
        yield cause("FieldValueTooLong", "metadata.annotations", detail)
    owners = metadata.get("ownerReferences") or []
    for number, one in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not one.get(field):
                where = f"metadata.ownerReferences[{number}].{field}"
                yield invalid_value(where, one.get(field, ""), "must not be empty")
    if sum(bool(it.get("controller")) for it in owners) > 1:
        detail = "Only one reference can have Controller set to true."
        yield invalid_value("metadata.ownerReferences", owners, detail)


def name_problems(plural: str, name: str, path: str = "metadata.name") -> Iterator[Cause]:
    if plural in _SEGMENTS:
        if "/" in name or "%" in name or name in (".", ".."):
            yield invalid_value(path, name, "may not contain '/'")
        return
    pattern, rule, most = (
        (_LABEL, _LABEL_RULE, 63) if plural in _LABELS else (_SUBDOMAIN, _SUBDOMAIN_RULE, 253)
    )
    if len(name) > most:
        yield invalid_value(path, name, f"must be no more than {most} characters")
    if not re.fullmatch(pattern, name):
        yield invalid_value(path, name, rule)


def label_problems(path: str, labels: dict[str, Any]) -> Iterator[Cause]:
    for key, value in labels.items():
        yield from _key_problems(path, key)
        if len(value) > 63:
            yield invalid_value(path, value, "must be no more than 63 characters")
        if value and not re.fullmatch(_NAME, value):
            yield invalid_value(path, value, _VALUE_RULE)


def _key_problems(path: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix.lower()):
        yield invalid_value(path, key, f"prefix part {_SUBDOMAIN_RULE}")
    if len(name) > 63:
        yield invalid_value(path, key, "name part must be no more than 63 characters")
    if not re.fullmatch(_NAME, name):
        yield invalid_value(path, key, _KEY_RULE)
