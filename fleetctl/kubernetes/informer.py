"""All objects of a sort, as the API server has them: one list, then a watch, for ever.

Called by the provider `kubernetes` for its Jobs and pods and by the operator for custom resources.
Its content may be old: that an object is missing here is no proof that it is gone,
unless a list begun after the question shows the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import ApiConnection, Object

log = logging.getLogger("fleetctl.kubernetes")

PAGE_OBJECTS = 500  # the page size of kubectl
LIST_S = 60.0
AGAIN_S = 0.2
AGAIN_MAX_S = 30.0
# The server ends a watch then; each has another so that a thousand do not come back at once.
WATCH_S = (240, 360)

Key = tuple[str, str]  # (namespace, name); the namespace is empty for cluster-wide ones
# (ADDED | MODIFIED | DELETED, the object's current or last state, the state known before)
Changed = Callable[[str, Object, Object | None], None]


def key_of(found: Object) -> Key:
    metadata = found.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def version_of(found: Object) -> str:
    return str((found.get("metadata") or {}).get("resourceVersion") or "")


class Informer:
    """A cache of objects. changed: called on the loop for each change, also for those between two
    watches that only a new list shows. It must not raise and not block.
    """

    def __init__(
        self,
        connection: ApiConnection,
        path: str,
        *,
        changed: Changed,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        self.path = path
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self.trouble: FleetctlError | None = None  # why no events arrive now
        self._connection = connection
        self._changed = changed
        self._selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {key: text for key, text in self._selectors.items() if text}
        self._version = ""
        self._random = Random()  # noqa: S311 - jitter

    async def run(self) -> None:
        """Lists and watches until cancelled; repeats a failed step with growing pauses."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self.list()
                await self._watch()
                failures = 0
            except ApiError as error:
                if not error.expired:
                    log.warning("watch refused", extra={"path": self.path, "error": str(error)})
                    failures = self._note(error, failures)
                self._version = ""
            except Unavailable as error:
                failures = self._note(error, failures)
            if failures:
                wait_s = min(AGAIN_MAX_S, AGAIN_S * 2.0 ** min(failures, 16))
                await asyncio.sleep(wait_s * (0.5 + self._random.random() / 2))

    def _note(self, error: FleetctlError, failures: int) -> int:
        if failures == 0:
            log.info("no event arrives", extra={"path": self.path, "error": str(error)})
        self.trouble = error
        return failures + 1

    async def list(self) -> None:
        """Takes over a consistent list; an object that is not in it is gone. Raises ApiError and
        Unavailable, and then the content is unchanged.
        """
        for _ in range(3):  # a continue token may be too old by the last page
            try:
                found, version = await self._pages()
            except ApiError as error:
                if not error.expired:
                    raise
                continue
            self._replace(found, version)
            return
        raise Unavailable(f"{self.path}: its pages expire faster than they are read")

    async def _pages(self) -> tuple[dict[Key, Object], str]:
        found: dict[Key, Object] = {}
        query: dict[str, str | int | bool] = {"limit": PAGE_OBJECTS, **self._selectors}
        while True:
            page = await self._connection.request(
                "GET",
                self.path,
                query=query,
                deadline_s=LIST_S,
                tries=1,
            )
            metadata = page.get("metadata") or {}
            for item in page.get("items") or ():
                found[key_of(item)] = item
            token = metadata.get("continue")
            if not token:
                return found, str(metadata.get("resourceVersion") or "")
            query["continue"] = str(token)

    def _replace(self, found: dict[Key, Object], version: str) -> None:
        gone = [known for key, known in self.objects.items() if key not in found]
        before = self.objects
        self.objects = found
        self._version = version
        self._note_reply()
        for known in gone:
            self._changed("DELETED", known, known)
        for key, item in found.items():
            known_before = before.get(key)
            if known_before is None or version_of(known_before) != version_of(item):
                self._changed("MODIFIED" if known_before else "ADDED", item, known_before)
        self.synced.set()

    async def _watch(self) -> None:
        query: dict[str, str | int | bool] = {
            "resourceVersion": self._version,
            "timeoutSeconds": self._random.randint(*WATCH_S),
            **self._selectors,
        }
        async for event in self._connection.watch(self.path, query):
            self._take(str(event.get("type")), event.get("object") or {})

    def _take(self, sort: str, found: Object) -> None:
        self._version = version_of(found) or self._version
        self._note_reply()
        if sort == "BOOKMARK":
            return
        key = key_of(found)
        if sort == "DELETED":
            self._changed(sort, found, self.objects.pop(key, None))
        elif sort in ("ADDED", "MODIFIED"):
            known = self.objects.get(key)
            self.objects[key] = found
            self._changed("MODIFIED" if known else "ADDED", found, known)

    def _note_reply(self) -> None:
        self.trouble = None

    def of(self, namespace: str) -> Iterator[Object]:
        return (it for (within, _), it in self.objects.items() if within == namespace)
