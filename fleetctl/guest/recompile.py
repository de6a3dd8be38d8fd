"""Fills in the table of compiled modules of a shipped guest, under the Python that will run it.

Runs once, while an image is built; its argument is the path of the guest. Python 3.9 and later.
"""

from __future__ import annotations

import binascii
import marshal
import re
import sys
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def recompiled(text: str) -> str:
    guest: dict[str, Any] = {"__name__": "guest"}
    exec(compile(text, "guest", "exec"), guest)  # noqa: S102 - our own program
    sources = guest["unpacked"](guest["SOURCES"])
    table = {name: marshal.dumps(guest["compile_part"](one, name)) for name, one in sources.items()}
    packed = binascii.b2a_base64(zlib.compress(marshal.dumps(table, 2), 9), newline=False)
    filled = re.sub(r'^COMPILED = "\S*"$', f'COMPILED = "{packed.decode()}"', text, flags=re.M)
    by = f"COMPILED_BY = {guest['version']()!r}"
    return re.sub(r"^COMPILED_BY = ['\"].*['\"]$", by, filled, flags=re.M)


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(recompiled(text))


if __name__ == "__main__":
    main(sys.argv[1])
