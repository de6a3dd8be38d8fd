"""Access to an endpoint's servers: their URLs, the key, and the other settings of each request that
its spec has. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from fleetctl.specs.values.model_urls import url_of

AUTHORIZATION = "Authorization"


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a server. headers: with the key. query: `name=value&...`, of each URL."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: str = ""

    def url(
        self,
        base: str,
        path: str,
        *,
        api: str = "openai",
    ) -> str:
        found = url_of(base, path, api=api)
        if not self.query:
            return found
        return f"{found}{'&' if '?' in found else '?'}{self.query}"


def read_access(spec: Mapping[str, Any], key: str) -> Access:
    headers = dict(spec.get("headers") or {})
    if key:
        name = str((spec.get("apiKey") or {}).get("header") or AUTHORIZATION)
        headers = {it: value for it, value in headers.items() if it.lower() != name.lower()}
        headers[name] = f"Bearer {key}" if name.lower() == AUTHORIZATION.lower() else key
    return Access(headers, urlencode(spec.get("query") or {}))
