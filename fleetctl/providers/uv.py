"""uv as this machine has it, its path and its error messages, and the package indexes of an image
as installers read them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlsplit

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.programs import run_program
from fleetctl.specs.blocks.template import Image, PipIndex
from fleetctl.specs.values.packages import without_digest

RESOLVE_S = 120.0  # for an index to report all packages and their requirements
# uv's words where a registry was not reached or failed, which no change of the image could fix.
AWAY = ("error sending request for url", "HTTP status server error", "operation timed out")
DOINGS = ("Using ", "Resolved ", "Prepared ", "Creating ", "Downloading ", "Audited ")
DEFAULT_PYTHON = "3.12"

USERNAME, PASSWORD = "PIP_INDEX_USERNAME", "PIP_INDEX_PASSWORD"
LOGIN_NAME = "FLEETCTL"
# The user name that registries take beside a token.
ANY_USERNAME = "__token__"


def find_uv() -> str:
    """uv beside our interpreter, or on PATH. Raises Refused."""
    beside = Path(sys.executable).parent / "uv"
    if beside.exists():
        return str(beside)
    if (found := shutil.which("uv")) is not None:
        return found
    raise Refused(
        "image.python and image.pip need `uv`, which is not installed",
        hint=f"{install_hint('images')}, or uv by itself: pip install uv",
    )


def one_line(said: str) -> str:
    """Returns a failed step's cause: uv prints a chain of causes, a line each, below its own
    steps.
    """
    lines = (
        line.strip().removeprefix("error: ").removeprefix("cause: ").lstrip("×╰─▶│ ")
        for line in said.split("\n")
        if not line.startswith(DOINGS)
    )
    return without_passwords("; ".join(line.rstrip(".") for line in lines if line))


async def check_packages(image: Image) -> None:
    """Checks whether all packages of an image exist and fit together. Raises Refused where they do
    not, and Unavailable where that is unknown.
    """
    with TemporaryDirectory(prefix="fleetctl-") as place:
        wanted = Path(place, "requirements.in")
        wanted.write_text("\n".join(map(without_digest, image.pip)) + "\n", encoding="utf-8")
        argv = [find_uv(), "pip", "compile", "--no-header", "--no-config", "--quiet"]
        argv += [
            "--python-version",
            image.python or DEFAULT_PYTHON,
            *index_options(image.pip_index),
        ]
        given = index_variables(image.pip_index)
        try:
            answer = await run_program(
                [*argv, str(wanted)],
                deadline_s=RESOLVE_S,
                cwd=place,
                env={**os.environ, "UV_NO_PROGRESS": "1", **given},
            )
        except TimeoutError as error:
            raise Unavailable(f"the index did not answer within {RESOLVE_S:g} s") from error
    if answer.code == 0:
        return
    why = one_line(answer.errors.decode("utf-8", "replace"))
    if any(words in why for words in AWAY):
        raise Unavailable(why)
    raise Refused(why, hint="change `image.pip`, or name where they are in `image.pipIndex`")


def index_options(index: PipIndex | None) -> list[str]:
    """Returns the options without secrets, in the order that uv asks: further indexes come before
    the first.
    """
    if index is None:
        return []
    found: list[str] = []
    if index.secret is None:
        found += [f"--index-url={index.url}"] if index.url else []
        found += [f"--extra-index-url={it}" for it in index.extra]
    return found + [f"--find-links={it}" for it in index.find_links]


def index_variables(index: PipIndex | None) -> dict[str, str]:
    """Returns the rest, for the environment of the installer alone; {} without a password. Raises
    Refused where a password is missing.
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
    known = _hosts_with_login(index)
    urls = [_with_user(it, user) if _url_host(it) in known else it for it in index.extra]
    found = {"EXTRA_INDEX_URL": " ".join(urls)} if urls else {}
    if index.url:
        found["INDEX_URL"] = _with_user(index.url, user)
    return {f"{tool}_{name}": text for name, text in found.items() for tool in ("UV", "PIP")}


def without_passwords(text: str) -> str:
    """Returns a program's output without passwords, fit to be shown."""
    return re.sub(r"(//[^/\s:@]+:)[^/\s@]+@", r"\1***@", text)


def refuse_secret(image: Image | None, provider: str) -> None:
    """Raises Refused at a provider that can hand no password to what builds its images."""
    if image is not None and image.pip_index is not None and image.pip_index.secret is not None:
        raise Refused(
            f"image.pipIndex.secret is `{image.pip_index.secret}`, and provider `{provider}` has no"
            " way to give a password to what installs packages",
            hint="build an image with the packages, push it, and name it in `image.registry`; or"
            " name an index or a mirror that asks for no password",
        )


def named_options(index: PipIndex) -> list[str]:
    """Returns the options of uv for indexes whose password its environment has by index name:
    `UV_INDEX_<name>_USERNAME` and `_PASSWORD`, for names that begin with `LOGIN_NAME`.
    """
    known = _hosts_with_login(index)
    found = []
    for number, url in enumerate((*index.extra, *([index.url] if index.url else []))):
        option = "index" if number < len(index.extra) else "default-index"
        name = f"{LOGIN_NAME}{number}=" if _url_host(url) in known else ""
        found.append(f"--{option}={name}{url}")
    return found + [f"--find-links={it}" for it in index.find_links]


def login_of(values: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of a Secret that an index is asked with."""
    return {name: values[name] for name in (USERNAME, PASSWORD) if name in values}


def _hosts_with_login(index: PipIndex) -> set[str]:
    return {_url_host(it) for it in ([index.url] if index.url else index.extra)}


def _url_host(url: str) -> str:
    return urlsplit(url).netloc


def _with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@", 1)
