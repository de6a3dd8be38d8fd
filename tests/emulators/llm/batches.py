"""The batch API of a model server, as OpenAI's: files, batches, and what becomes of their rows. A
batch moves on when it is looked at, so that a test says how far it gets, and waits for nothing.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Reply = Callable[[dict[str, Any]], dict[str, Any]]
Json = dict[str, Any]
_LIVE = ("validating", "in_progress")


@dataclass
class Made:
    """One batch. answered: custom ids, in the order in which the server answered."""

    document: Json
    rows: list[Json]
    answered: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.document["status"])


@dataclass
class Batches:
    """The ground truth is `made`, `tokens` and `answered`. held: batches get no further than
    `in_progress`, with `done` rows answered. ends: what becomes of the next ones, in turn, in place
    of `completed`: `expired`, after `done` rows, or `failed`. lost: replies to creates that are
    made, and lost. hangs: creates have no reply, `before` or `after` they are made; hanging: how
    many. unlisted: so many listings show nothing; missing: so many looks at a batch do; short: so
    many files are read with half of their lines. page: batches of a listing at most.
    refuse: status of a row's own error, or 0. Files
    have their rows in another order than they were asked in.
    """

    held: bool = False
    done: int = 0
    ends: deque[str] = field(default_factory=deque)
    fails: tuple[str, str] = ("invalid", "the file is not valid")  # code and message of `failed`
    lost: int = 0
    hangs: str = ""
    hanging: int = 0
    unlisted: int = 0
    missing: int = 0
    short: int = 0
    page: int = 100
    refuse: Callable[[Json], int] = lambda _: 0
    made: list[Made] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    tokens: int = 0
    listings: int = 0
    cancels: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        """The last message of each row of each batch."""
        rows = [row for made in self.made for row in made.rows]
        return [str(row["body"]["messages"][-1]["content"]) for row in rows]

    async def serve(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        parts = request.path.split("/")[2:]
        match request.method, parts:
            case "POST", ["files"]:
                form = await request.post()
                file = form["file"]
                assert isinstance(file, web.FileField) and form["purpose"] == "batch"
                return web.json_response({"id": self._file(file.file.read()), "object": "file"})
            case "GET", ["files", name, "content"]:
                return web.Response(body=self._content(name))
            case "POST", ["batches"]:
                if self.hangs != "before":
                    self._make(await request.json())
                if self.hangs:
                    self.hanging += 1
                    await asyncio.Event().wait()
                if self.lost:
                    self.lost -= 1
                    assert request.transport is not None
                    request.transport.close()
                return web.json_response(self.made[-1].document)
            case "GET", ["batches"]:
                return web.json_response(self._list(request))
            case "GET", ["batches", name]:
                made = self._named(name)
                if self.missing:
                    self.missing -= 1
                    return web.json_response({"error": {"message": "no such batch"}}, status=404)
                self._move(made, reply)
                return web.json_response(made.document)
            case "POST", ["batches", name, "cancel"]:
                made = self._named(name)
                self.cancels.append(name)
                if made.status in _LIVE:
                    made.document["status"] = "cancelling"
                return web.json_response(made.document)
        return web.json_response({"error": {"message": "not found"}}, status=404)

    def _file(self, content: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def _named(self, name: str) -> Made:
        return next(it for it in self.made if it.document["id"] == name)

    def _content(self, name: str) -> bytes:
        if not self.short:
            return self.files[name]
        self.short -= 1
        lines = self.files[name].splitlines(keepends=True)
        return b"".join(lines[: len(lines) // 2])

    def _make(self, body: Json) -> None:
        rows = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        document = {
            "id": f"batch_{len(self.made)}",
            "object": "batch",
            "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"],
            "completion_window": body["completion_window"],
            "metadata": body.get("metadata"),
            "status": "validating",
            "created_at": int(time.time()),
            "output_file_id": None,
            "error_file_id": None,
            "request_counts": {"total": len(rows), "completed": 0, "failed": 0},
        }
        self.made.append(Made(document, rows))

    def _list(self, request: web.Request) -> Json:
        """The newest first."""
        most = min(self.page, int(request.query.get("limit", "20")))
        self.listings += 1
        if self.unlisted and request.query.get("limit") != "1":
            self.unlisted -= 1
            return {"object": "list", "data": [], "has_more": False}
        rows = [it.document for it in reversed(self.made)]
        after = request.query.get("after")
        if after:
            rows = rows[[it["id"] for it in rows].index(after) + 1 :]
        return {"object": "list", "data": rows[:most], "has_more": len(rows) > most}

    def _move(self, made: Made, reply: Reply) -> None:
        match made.status:
            case "validating":
                made.document["status"] = "in_progress"
            case "in_progress" if self.held:
                counts = made.document["request_counts"]
                counts["completed"] = min(self.done, len(made.rows))
            case "in_progress":
                self._end(made, self.ends.popleft() if self.ends else "completed", reply)
            case "cancelling":
                self._end(made, "cancelled", reply)

    def _end(self, made: Made, status: str, reply: Reply) -> None:
        made.document["status"] = status
        if status == "failed":
            code, message = self.fails
            error = {"code": code, "message": message, "line": None, "param": None}
            made.document["errors"] = {"object": "list", "data": [error]}
            return
        most = len(made.rows) if status == "completed" else self.done
        good, bad = [], []
        for number, row in enumerate(reversed(made.rows)):
            line = self._line(made, row, reply) if number < most else _unasked(row, status)
            fine = line["error"] is None and line["response"]["status_code"] == 200
            (good if fine else bad).append(line)
        counts = {"total": len(made.rows), "completed": len(good), "failed": len(bad)}
        made.document["request_counts"] = counts
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                made.document[name] = self._file(b"".join(_lines(lines)))

    def _line(self, made: Made, row: Json, reply: Reply) -> Json:
        status = self.refuse(row["body"])
        if status:
            answer: Json = {"error": {"message": "the prompt is not taken", "code": "refused"}}
        else:
            made.answered.append(row["custom_id"])
            answer, status = reply(row["body"]), 200
            self.tokens += answer.get("usage", {}).get("total_tokens", 0)
        response = {"status_code": status, "request_id": "r", "body": answer}
        return {"id": "l", "custom_id": row["custom_id"], "response": response, "error": None}


def _unasked(row: Json, status: str) -> Json:
    error = {"code": f"batch_{status}", "message": "it was not begun"}
    return {"id": "l", "custom_id": row["custom_id"], "response": None, "error": error}


def _lines(rows: list[Json]) -> Iterator[bytes]:
    for row in rows:
        yield json.dumps(row).encode() + b"\n"
