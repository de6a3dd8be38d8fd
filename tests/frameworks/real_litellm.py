"""Unmodified litellm and dspy ask models through the gateway. `make test-frameworks` installs both
into the environment whose Python $FLEETCTL_TEST_DSPY names.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import in_loop

SCRIPT = Path(__file__).parent / "scripts/llm_clients.py"
PYTHON = os.environ["FLEETCTL_TEST_DSPY"]
HANG_S = 600
CALLS = 11  # one each, two streams, four at once, embeddings of two texts (counted twice), dspy


@in_loop
async def test_litellm_and_dspy_chat_stream_and_embed(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], api="ollama", limits={"callsPerTask": CALLS})
        token = gateway_token(gateway.key, "r1")
        env = {
            **os.environ,
            "OPENAI_BASE_URL": gateway.url + "/v1",
            "OPENAI_API_KEY": token,
            "OLLAMA_HOST": f"{gateway.url}/t/{token}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks a host elsewhere for prices
        }
        script = await asyncio.create_subprocess_exec(
            PYTHON, str(SCRIPT), env=env, stdout=asyncio.subprocess.PIPE
        )
        try:
            printed, _ = await asyncio.wait_for(script.communicate(), HANG_S)
        finally:
            if script.returncode is None:
                script.kill()
        assert script.returncode == 0
        answers = json.loads(printed.splitlines()[-1])
        assert (answers["openai"], answers["ollama"]) == ("echo: say it",) * 2
        assert answers["streams"] == [["echo:", "say", "it"]] * 2
        assert answers["at_once"] == [f"echo: {n}" for n in range(4)]
        assert (answers["embeddings"], answers["dspy"]) == (2, ["echo: by dspy"])
        assert answers["refused"] == ["RateLimitError", True]
        used = (await gateway.used())["r1"]
        assert (used["calls"], used["refused"]) == (CALLS, 1)  # litellm did not ask again
