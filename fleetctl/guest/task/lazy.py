"""Imports modules at their first use, since few tasks need them: `json`, tracebacks' lines, and
parts of the guest.

Part of the guest. With the modules that they import (`re`, `enum`, `tokenize`) they take twice as
long to import as an interpreter does to start, which every sandbox of a short task would pay.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional
else:
    ModuleType = type(sys)

FILE_NAME = "<task>"


class LazyModule(ModuleType):
    """A module that is imported when an attribute is first read."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load_module(self), name)


def load_module(lazy: ModuleType) -> ModuleType:
    """Imports a lazy module now; returns the module itself."""
    whole = import_module(lazy.__name__)
    lazy.__dict__.update(whole.__dict__)
    return whole


def import_module(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]


def known_or_lazy(name: str) -> ModuleType:
    """Returns the module itself where it is imported already."""
    return sys.modules.get(name) or LazyModule(name)


def show_source(code: str) -> None:
    """Makes tracebacks show the lines of the task."""
    known = sys.modules.get("linecache")
    if known is not None:
        _cache_source(known, code)
        return
    for one in sys.meta_path:
        if isinstance(one, Lines):
            one.code = code
            return
    sys.meta_path.insert(0, Lines(code))


class Lines:
    """A finder on `sys.meta_path` that gives `linecache` the task's lines at its import."""

    def __init__(self, code: str) -> None:
        self.code = code

    def find_spec(
        self,
        name: str,
        path: Any = None,
        target: Any = None,
    ) -> Optional[Any]:
        if name != "linecache":
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            spec: Any = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader.exec_module = self._showing(spec.loader.exec_module)
                return spec
        return None

    def _showing(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def execute_and_show(module: ModuleType) -> None:
            execute(module)
            _cache_source(module, self.code)

        return execute_and_show


def _cache_source(linecache: ModuleType, code: str) -> None:
    lines = code.splitlines(keepends=True)
    linecache.__dict__["cache"][FILE_NAME] = (len(code), None, lines, FILE_NAME)
