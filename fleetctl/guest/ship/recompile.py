"""Makes the table that quick.py reads, under the Python that will run the guest.

Runs once, while an image is built; its argument is the path of the guest without compiled parts.
Python 3.9 and later.
"""

from __future__ import annotations

import marshal
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLE = "guest.bin"  # beside the guest


def compile_table(text: str) -> bytes:
    """Compiles the whole guest into one piece, behind a line with the version it needs."""
    guest: dict[str, Any] = {"__name__": "guest"}
    exec(compile(text, "guest", "exec"), guest)  # our own program
    compiled = guest["compile_part"]
    sources = guest["unpack_table"](guest["SOURCES"])
    codes = {name: marshal.dumps(compiled(one, name)) for name, one in sources.items()}
    whole = re.sub(r'^SOURCES = "\S*"$', lambda _: f"UNPACKED = {codes!r}", text, flags=re.M)
    version: str = guest["read_version"]()
    return version.encode() + b"\n" + marshal.dumps(compiled(whole, "guest"))


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(f"{path.rpartition('/')[0]}/{TABLE}", "wb") as file:
        file.write(compile_table(text))


if __name__ == "__main__":
    main(sys.argv[1])
