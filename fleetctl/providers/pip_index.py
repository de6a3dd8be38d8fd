"""Where an image's packages come from, as installers read it: options of uv and pip, and variables
where a password is in one, which is in no argument, log or image. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from fleetctl.common.errors import Refused
from fleetctl.specs.blocks.template import Image, PipIndex

USERNAME, PASSWORD = "PIP_INDEX_USERNAME", "PIP_INDEX_PASSWORD"
# What registries take beside a token.
ANY_USERNAME = "__token__"


def options(index: PipIndex | None) -> list[str]:
    """What is no secret, in the order that uv asks: further indexes come before the first."""
    if index is None:
        return []
    found: list[str] = []
    if index.secret is None:
        found += [f"--index-url={index.url}"] if index.url else []
        found += [f"--extra-index-url={it}" for it in index.extra]
    return found + [f"--find-links={it}" for it in index.find_links]


def variables(index: PipIndex | None) -> dict[str, str]:
    """The rest, for the environment of the installer alone; empty without a password. Raises
    Refused where nobody has given one.
    """
    if index is None or index.secret is None:
        return {}
    login = index.login
    if login is None or not login.get(PASSWORD):
        raise Refused(
            f"image.pipIndex.secret is `{index.secret}`, which has no `{PASSWORD}`",
            hint=f"kind: Secret with `fromEnv: [{PASSWORD}]`, and {USERNAME} where it is not"
            f" `{ANY_USERNAME}`",
        )
    user = (
        f"{quote(login.get(USERNAME) or ANY_USERNAME, safe='')}:{quote(login[PASSWORD], safe='')}"
    )
    known = {_host(it) for it in ([index.url] if index.url else index.extra)}
    urls = [_with_user(it, user) if _host(it) in known else it for it in index.extra]
    found = {"EXTRA_INDEX_URL": " ".join(urls)} if urls else {}
    if index.url:
        found["INDEX_URL"] = _with_user(index.url, user)
    return {f"{tool}_{name}": text for name, text in found.items() for tool in ("UV", "PIP")}


def without_passwords(text: str) -> str:
    """What a program said, fit to be shown."""
    return re.sub(r"(//[^/\s:@]+:)[^/\s@]+@", r"\1***@", text)


def refuse_secret(image: Image | None, provider: str) -> None:
    """Raises Refused at a provider that can hand no password to what builds its images."""
    if image is not None and image.pip_index is not None and image.pip_index.secret is not None:
        raise Refused(
            f"image.pipIndex.secret is `{image.pip_index.secret}`, and provider `{provider}` has no"
            " way to give a password to what installs packages",
            hint="build an image with the packages, push it, and name it in `image.registry`",
        )


def login_of(values: Mapping[str, str]) -> dict[str, str]:
    """Of all values of a Secret, those that an index is asked with."""
    return {name: values[name] for name in (USERNAME, PASSWORD) if name in values}


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@", 1)
