"""Starts the guest from `guest.bin` beside it, which was compiled ahead; see recompile.py.

Shipped next to the one file where files are cheap: to read that as text takes half as much CPU as
Python's own start. Where the table is missing, or of another Python, the one file itself runs.
"""

import marshal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

TABLE = "guest.bin"
WHOLE = "guest.py"


def load_code(here: "str") -> "CodeType":
    """Returns the guest's code. here: the directory of both files, with its slash."""
    # As `read_version` of onefile.py, which is not there yet.
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    wanted = f"{sys.implementation.cache_tag} {sys.byteorder} {magic.hex()}\n"
    try:
        with open(here + TABLE, "rb", buffering=0) as file:
            data = file.read()
    except OSError:
        data = b""
    if data.startswith(wanted.encode()):
        table: CodeType = marshal.loads(memoryview(data)[len(wanted) :])  # our own
        return table
    with open(here + WHOLE, encoding="utf-8") as file:
        return compile(file.read(), WHOLE, "exec", dont_inherit=True)


if __name__ == "__main__":
    exec(load_code(sys.argv[0].rpartition("/")[0] + "/"), {"__name__": "__main__"})  # ours
