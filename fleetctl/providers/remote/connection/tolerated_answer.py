"""Passes over an answer of a service that is no failure there, such as that a sandbox which is to
be deleted does not exist. Used around calls of an SDK, whose errors the provider's predicates know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class ToleratedAnswer(AbstractContextManager[None, bool]):
    """A context that ends quietly at such an answer; every other error passes.

    are: predicates of an error, such as `is_not_found`.
    """

    def __init__(self, *are: Callable[[Exception], bool]) -> None:
        self._are = are

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return isinstance(error, Exception) and any(is_it(error) for is_it in self._are)
