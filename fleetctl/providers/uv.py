"""uv as this machine has it: where it is, what it says when it fails, and whether it finds the
packages of an image. Called by provider `local`, which builds with it, and by `plan --resolve`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.pip_index import options, variables, without_passwords
from fleetctl.providers.programs import ask
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.packages import without_digest

RESOLVE_S = 120.0  # for an index to tell of all packages and what they need
# uv's words where a registry was not reached or failed: nothing that the image could mend.
AWAY = ("error sending request for url", "HTTP status server error", "operation timed out")
DOINGS = ("Using ", "Resolved ", "Prepared ", "Creating ", "Downloading ", "Audited ")
DEFAULT_PYTHON = "3.12"


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
    """Of a failed step: uv says a chain of causes, a line each, below what it says of its
    doings.
    """
    lines = (
        line.strip().removeprefix("error: ").removeprefix("cause: ").lstrip("×╰─▶│ ")
        for line in said.split("\n")
        if not line.startswith(DOINGS)
    )
    return without_passwords("; ".join(line.rstrip(".") for line in lines if line))


async def resolve(image: Image) -> None:
    """Ask whether all packages of an image are there and go together. Raises Refused where they do
    not, and Unavailable where nobody can tell.
    """
    with TemporaryDirectory(prefix="fleetctl-") as place:
        wanted = Path(place, "requirements.in")
        wanted.write_text("\n".join(map(without_digest, image.pip)) + "\n", encoding="utf-8")
        argv = [find_uv(), "pip", "compile", "--no-header", "--no-config", "--quiet"]
        argv += ["--python-version", image.python or DEFAULT_PYTHON, *options(image.pip_index)]
        given = variables(image.pip_index)
        try:
            answer = await ask(
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
