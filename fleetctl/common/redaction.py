"""Finds texts that look like credentials, and removes them. Pure; called by all code that shows,
stores or packs users' texts.
"""

from __future__ import annotations

import re

CREDENTIAL_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?key|access_?key|key|token|secret|passw(?:or)?d|credentials?)(?:$|[_\-.])",
    re.I,
)
HIDDEN = "***"
_URL_USER = re.compile(r"//[^/\s@]+@")
_URL_FIELD = re.compile(r"(?P<before>[?&;])(?P<name>[^=&;#\s]{1,100})=(?P<value>[^&;#\s`'\"]+)")


def without_credentials(text: str) -> str:
    """Returns the text, in which no URL has a user, a password, or a field of its query that is
    named like a credential.
    """
    return _URL_FIELD.sub(_hidden_field, _URL_USER.sub(f"//{HIDDEN}@", text))


def has_credential_field(url: str) -> bool:
    """Returns true if a field of its query is named like a credential."""
    return any(CREDENTIAL_NAME.search(it["name"]) for it in _URL_FIELD.finditer(url))


def _hidden_field(field: re.Match[str]) -> str:
    if not CREDENTIAL_NAME.search(field["name"]):
        return field[0]
    return f"{field['before']}{field['name']}={HIDDEN}"
