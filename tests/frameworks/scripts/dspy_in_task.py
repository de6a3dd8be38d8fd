"""Recursive queries of a task: writes one line of JSON. argv: the directory of the task's library.

The model server is here, too: where code is asked for it writes what the query says.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CODE = "[[ ## reasoning ## ]]\nr\n\n[[ ## code ## ]]\nexec(query)\n\n[[ ## completed ## ]]"
ASK = "SUBMIT(answer=llm_query(context))"
LATE = "import time; time.sleep(600)"
BELOW = "SUBMIT(answer=rlm_query(context))"
asked: list[str] = []


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        asked.append(body["model"])
        text = CODE if "[[ ## code ## ]]" in prompt else prompt.upper()
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        choices = [{"message": {"content": text}}]
        data = json.dumps({"choices": choices, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def counted(ask: Any) -> list[Any]:
    """What came of it, and how often the model was asked."""
    before = len(asked)
    try:
        told = ask()
    except RuntimeError as error:
        told = str(error)
    return [told, len(asked) - before]


def left() -> int:
    """Processes of queries that have ended, after a while."""
    own = Path(f"/proc/{os.getpid()}/task")
    for _ in range(100):
        children = sum(len(one.read_text().split()) for one in own.glob("*/children"))
        if not children:
            break
        threading.Event().wait(0.1)
    return children


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
os.environ["FLEETCTL_LLM_MODEL"] = "tiny"
sys.path.insert(0, sys.argv[1])

from fleetctl_llm import rlm_query, rlm_query_batched  # noqa: E402

pair = [{"query": ASK, "context": "a"}, {"query": ASK, "context": "b"}]
deepest = "SUBMIT(answer=rlm_query('so', context='deep'))"
print(
    json.dumps(
        {
            "batch": counted(lambda: rlm_query_batched(pair, concurrency=2)),
            "nested": counted(lambda: rlm_query(BELOW, context=deepest)),
            "spent": counted(lambda: rlm_query_batched(pair, max_llm_calls=2)),
            "too_few": counted(lambda: rlm_query_batched(pair, max_llm_calls=1)),
            "tokens": counted(lambda: rlm_query(ASK, "a", max_llm_tokens=100)),
            "enough": counted(lambda: rlm_query(ASK, "a", max_llm_tokens=20_000, max_tokens=100)),
            "unpriced": counted(lambda: rlm_query(ASK, "a", max_llm_usd=1.0)),
            "late": counted(lambda: rlm_query(LATE, rlm_timeout=5.0)),
            "left": left(),
            "models": sorted(set(asked)),
        }
    )
)
