"""The head of a guest that ships as one file: imports its modules from the tables that follow.

Placed before the tables by assemble.py. A module that a verb does not import is never compiled;
where the interpreter is of the version that assembled the file, no module is, since compiling costs
as much CPU as starting Python does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any

# Tables as `packed` writes them. By name of module: its text, and its code, marshalled.
SOURCES = COMPILED = ""
UNPACKED: dict[str, bytes] = {}  # the code as it is, in a head that was itself compiled
COMPILED_BY = ""  # `read_version` of the interpreter that compiled the tables
PACKAGES = (
    "fleetctl",
    "fleetctl.guest",
    *(f"fleetctl.guest.{name}" for name in ("task", "journal", "metrics", "supervision")),
    *(f"fleetctl.guest.{name}" for name in ("checkpoints", "nodes", "outputs", "remote")),
    "fleetctl.guest.wandb",
    "fleetctl.guest.supervision.services",
    *(f"fleetctl.guest.remote.{name}" for name in ("process", "relay", "run")),
)


class OneFile:
    """Finds and loads the modules of this file; on `sys.meta_path`."""

    def __init__(self) -> None:
        self._compiled = bool(UNPACKED) or read_version() == COMPILED_BY
        self._table: dict[str, Any] = UNPACKED or unpack_table(
            COMPILED if self._compiled else SOURCES
        )

    def find_spec(self, name: str, *_: Any) -> Any:
        if name not in self._table:
            return None
        spec: Any = type(sys.__spec__)  # ModuleSpec, without importing importlib for it
        spec = spec(name, self)
        if name in PACKAGES:
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: Any) -> None:
        """Lets the import system make the module."""

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code(module.__name__), module.__dict__)  # our own modules

    def _code(self, name: str) -> CodeType:
        if not self._compiled:
            return compile_part(self._table[name], name)
        import marshal

        code: CodeType = marshal.loads(self._table[name])  # our own
        return code


def compile_part(source: str, name: str) -> CodeType:
    return compile(
        source,
        f"<{name}>",
        "exec",
        dont_inherit=True,
        optimize=2,
    )


def read_version() -> str:
    """Returns a text that is equal in two interpreters when one can execute the other's code."""
    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    return f"{sys.implementation.cache_tag} {sys.byteorder} {magic.hex()}"


def unpack_table(text: str) -> dict[str, Any]:
    import binascii
    import marshal
    import zlib

    table: dict[str, Any] = marshal.loads(zlib.decompress(binascii.a2b_base64(text)))
    return table
