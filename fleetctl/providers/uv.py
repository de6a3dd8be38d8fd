"""uv as this machine has it: its path, its error messages, and whether it finds the packages of an
image. Called by provider `local`, which builds with it, and by `plan --resolve`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.install import install_hint
from fleetctl.providers.pip_index import index_options, index_variables, without_passwords
from fleetctl.providers.programs import run_program
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.packages import without_digest

RESOLVE_S = 120.0  # for an index to report all packages and their requirements
# uv's words where a registry was not reached or failed, which no change of the image could fix.
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
