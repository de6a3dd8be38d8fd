"""A model server with OpenAI's protocol as the language model of an interpreter: `endpoint=`.

Made by interpreter.py when there is no `sub_lm`. Standard library alone; asks once, and in the
thread that calls.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fleetctl.common.errors import UsageError

FROM_VARIABLES = "env"
URL, KEY, MODEL = "OPENAI_BASE_URL", "OPENAI_API_KEY", "FLEETCTL_LLM_MODEL"
PROBLEM_CHARACTERS_MAX = 500
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class ModelServer:
    """endpoint: the base URL, such as http://127.0.0.1:11434/v1, or `env` for $OPENAI_BASE_URL; the
    key is $OPENAI_API_KEY, and the model $FLEETCTL_LLM_MODEL. Raises UsageError.
    """

    def __init__(self, endpoint: str, *, timeout_s: float) -> None:
        url = os.environ.get(URL, "") if endpoint == FROM_VARIABLES else endpoint
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            where = f"{URL} is" if endpoint == FROM_VARIABLES else "endpoint is"
            raise UsageError(
                f"{where} `{url}`; it must be the base URL of a model server",
                hint=f"endpoint='http://127.0.0.1:11434/v1', or endpoint='env' for ${URL}",
            )
        self._url = url.rstrip("/") + "/chat/completions"
        self._timeout_s = timeout_s
        self.model = os.environ.get(MODEL, "")

    def __call__(
        self,
        prompt: str = "",
        model: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The answer's text. Raises RuntimeError."""
        name = model or self.model
        if not name:
            raise RuntimeError(f"no model is named: set ${MODEL}, or llm_query(..., model=...)")
        asked = messages or [{"role": "user", "content": prompt}]
        body = json.dumps({"model": name, "messages": list(asked)}).encode()
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, body, headers)  # noqa: S310 - checked above
        return _content(self._send(request))

    def _send(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:  # noqa: S310
                data: bytes = reply.read(ANSWER_BYTES_MAX)
                return data
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(PROBLEM_CHARACTERS_MAX).decode("utf-8", "replace")
            raise RuntimeError(f"the model server answered {error.code}: {text}") from None
        except OSError as error:
            raise RuntimeError(f"the model server cannot be asked: {error}") from error


def _content(reply: bytes) -> str:
    try:
        text = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        text = None
    if not isinstance(text, str):
        raise RuntimeError("the model server answered without a text")
    return text
