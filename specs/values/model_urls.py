"""The URLs of a model server. A URL with a path is what clients call their base URL: the part
before `/chat/completions`, such as `/v1beta/openai`. One without a path has `/v1`. Pure.
"""

from __future__ import annotations

from urllib.parse import urlsplit

V1 = "/v1"


def base_of(url: str) -> str:
    """Returns the canonical spelling of a server's URL: `http://host` for `http://host/v1`."""
    bare = url.rstrip("/")
    if urlsplit(bare).path == V1:
        return bare.removesuffix(V1)
    return bare


def url_of(
    base: str,
    path: str,
    *,
    api: str = "openai",
) -> str:
    """Returns a URL. path: a path of OpenAI, which begins with `/v1/`, or another one of the
    server's own.
    """
    root = base.removesuffix(V1)
    if api == "openai" and path.startswith(f"{V1}/") and urlsplit(base).path:
        return base + path.removeprefix(V1)
    return root + path
