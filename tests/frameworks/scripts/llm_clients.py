"""litellm and dspy ask an endpoint as a task finds it: by OPENAI_BASE_URL, OPENAI_API_KEY and
OLLAMA_HOST. Writes one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import litellm

HI = [{"role": "user", "content": "say it"}]
OPENAI, OLLAMA = "openai/chat", "ollama_chat/chat"
# Of Ollama litellm reads another variable than Ollama's own clients do.
SERVER = {OPENAI: {}, OLLAMA: {"api_base": os.environ["OLLAMA_HOST"]}}


def text(reply: Any) -> str:
    return str(reply.choices[0].message.content)


def streamed(model: str) -> list[str]:
    stream = litellm.completion(model=model, messages=HI, stream=True, **SERVER[model])
    pieces = (chunk.choices[0].delta.content for chunk in stream)
    return [piece for piece in pieces if piece]


async def at_once() -> list[str]:
    asked = [
        litellm.acompletion(model=OPENAI, messages=[{"role": "user", "content": str(n)}])
        for n in range(4)
    ]
    return [text(reply) for reply in await asyncio.gather(*asked)]


def by_dspy() -> list[str]:
    import dspy

    return list(dspy.LM(OPENAI, cache=False)("by dspy"))


def refused() -> list[object]:
    """What one call too many is answered with, and whether it says which limit."""
    try:
        litellm.completion(model=OPENAI, messages=HI)
    except litellm.RateLimitError as error:
        return ["RateLimitError", "callsPerTask" in str(error)]
    return ["answered"]


answers = {
    "openai": text(litellm.completion(model=OPENAI, messages=HI)),
    "ollama": text(litellm.completion(model=OLLAMA, messages=HI, **SERVER[OLLAMA])),
    "streams": [streamed(OPENAI), streamed(OLLAMA)],
    "at_once": asyncio.run(at_once()),
    "embeddings": len(
        litellm.embedding(model=OPENAI, input=["a", "b"], encoding_format="float").data
    ),
    "dspy": by_dspy(),
}
print(json.dumps({**answers, "refused": refused()}))
