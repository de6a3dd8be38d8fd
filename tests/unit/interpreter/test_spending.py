"""What an interpreter's language model costs is limited over its code and all queries below it."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl import DaytonaInterpreter, Interpreter
from fleetctl.common.errors import UsageError
from fleetctl.common.tokens import gateway_token
from fleetctl.guest.library import fleetctl_llm_line as line
from fleetctl.interpreter.asking import rlm
from fleetctl.interpreter.asking.model_server import ModelServer, ServerRefused
from fleetctl.interpreter.asking.questions import Questions
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Fault, Model
from tests.interpreters import Place
from tests.unit.gateway.hosted import hosting
from tests.unit.interpreter.conftest import Make
from tests.unit.interpreter.test_recursion import one_step

PRICES = {"*": {"inputPerMillion": 100.0, "outputPerMillion": 1000.0}}


@pytest.fixture(autouse=True)
def _loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlm, "answer_query", one_step)
    monkeypatch.setattr(rlm, "check_installed", lambda: None)
    monkeypatch.delenv("FLEETCTL_PROVIDER", raising=False)


def told(tokens_in: int, tokens_out: int) -> Callable[[str], dict[str, Any]]:
    """A model that says what it used."""
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    return lambda prompt: {"text": prompt.upper(), "usage": usage}


@pytest.mark.parametrize("kind", [Interpreter, DaytonaInterpreter])
def test_tokens_of_queries_below_and_of_code_come_out_of_one_limit(kind: Any) -> None:
    model = told(300, 100)
    with kind(provider="local", sub_lm=model, max_llm_tokens=15_000, llm_prices=PRICES) as there:
        code = "print(rlm_query_batched(['SUBMIT(answer=llm_query(context))'] * 3, context='a'))"
        assert there.execute(code) == "['A', 'A', 'A']\n"
        assert there.execute("print(llm_query('b'))") == "B\n"
        below, own = {"depth": 1, "calls": 3}, {"depth": 0, "calls": 1}
        cost = {"tokens": 400, "usd": 0.13, "unpriced": 0, "sandboxes": 0}
        assert there.llm_usage == [own | cost, below | cost | {"tokens": 1200, "usd": 0.39}]
        # A quarter of what is left is less than a call may cost at worst, though not less than
        # these do.
        said = str(there.execute("rlm_query_batched(['print(llm_query(\"c\"))'] * 4)"))
        assert "4/4 failed: prompt[0]: " in said and "prompt[3]: " in said
        assert "0 tokens are used and 4" in said and "max_llm_tokens allows 3350 here" in said
        assert sum(row["tokens"] for row in there.llm_usage) == 1600


def test_dollars_need_a_price_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="its price is unknown, which is not 0") as refused:
        Interpreter(provider="local", sub_lm=str.upper, max_llm_usd=1.0)
    assert str(refused.value.hint).startswith('llm_prices={"*": {"inputPerMillion":')
    with pytest.raises(UsageError, match="it must be USD of a million tokens"):
        Interpreter(provider="local", sub_lm=str.upper, llm_prices={"a": {"input": 1.0}})
    prices = {"dear": {"inputPerMillion": 100.0, "outputPerMillion": 1000.0}}
    asked = []

    def model(prompt: str, model: str = "") -> str:
        asked.append(model)
        return prompt

    options = {"sub_lm": model, "llm_prices": prices}
    with Interpreter(provider="local", max_llm_usd=5.0, **options) as interpreter:
        said = str(interpreter.execute("llm_query('x', model='other')"))
        assert "RuntimeError: Unpriced: " in said and "`other` has no price: llm_prices=" in said
        said = str(interpreter.execute("llm_query_batched(['x', 'y'], model='dear')"))
        assert "$0.000000 of the language model is used and $8.19" in said
        assert "max_llm_usd allows $5.000000 here" in said
        assert asked == []
        assert interpreter.execute("print(llm_query('x', model='dear'))") == "x\n"
        assert 0.001 < interpreter.llm_usage[0]["usd"] < 0.01  # of bytes: nobody counted
    with Interpreter(provider="local", **options) as interpreter:
        interpreter.execute("llm_query('x', model='other')")
        assert [interpreter.llm_usage[0][name] for name in ("usd", "unpriced")] == [0.0, 1]


def test_a_call_of_which_nothing_is_known_counts_at_its_worst() -> None:
    never = threading.Event()
    options = {"sub_lm": lambda _: never.wait(), "llm_call_timeout": 0.1}
    with Interpreter(provider="local", max_llm_tokens=8000, **options) as interpreter:
        assert "no answer within 0.1 s" in str(interpreter.execute("llm_query('x')"))
        assert interpreter.llm_usage[0]["tokens"] > 4096
        assert "max_llm_tokens allows 8000 here" in str(interpreter.execute("llm_query('x')"))
    never.set()


def test_a_servers_count_is_taken_and_its_refusal_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(Model()) as server:
        monkeypatch.setenv("FLEETCTL_LLM_MODEL", "tiny")
        options = {"endpoint": f"{server.url}/v1", "max_llm_usd": 10.0}
        with Interpreter(provider="local", llm_prices=PRICES, **options) as interpreter:
            server.faults.append(Fault(429))
            assert "answered 429" in str(interpreter.execute("llm_query('one two')"))
            assert interpreter.llm_usage[0]["tokens"] == 0
            assert interpreter.execute("print(llm_query('one two'))") == "echo: one two\n"
            assert interpreter.llm_usage[0]["tokens"] == server.tokens > 0
        with Interpreter(provider="local", **options) as interpreter:
            said = str(interpreter.execute("llm_query('x')"))
    assert "`tiny` has no price: llm_prices=" in said


def test_our_gateway_says_the_price_and_what_all_tries_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        model = Model()
        async with hosting(tmp_path, model) as gateway:
            await gateway.declare([model], prices={"chat": PRICES["*"]})
            monkeypatch.setenv("OPENAI_BASE_URL", gateway.url + "/v1")
            monkeypatch.setenv("OPENAI_API_KEY", gateway_token(gateway.key, "r1"))
            monkeypatch.setenv("FLEETCTL_LLM_MODEL", "chat")
            options = {"endpoint": "env", "max_llm_usd": 10.0}
            async with Interpreter(provider="local", **options) as interpreter:  # type: ignore[arg-type]
                model.faults.append(Fault("lost"))  # counted, and tried again by the gateway
                assert await interpreter.aexecute("print(llm_query('hi'))") == "echo: hi\n"
                row = (await gateway.used())["r1"]
                (used,) = interpreter.llm_usage
                assert row["tries"] == 2
                assert used["tokens"] == row["tokens_in"] + row["tokens_out"] > model.tokens
                assert used["usd"] == pytest.approx(row["usd"], abs=2e-9)

    asyncio.run(story())


def test_at_its_deadline_a_query_ends_with_all_sandboxes_below_it(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def lasting(runner: rlm.CodeRunner, questions: Questions, **_: Any) -> str:
        runner.start()
        begun.release()
        go_on.wait()
        with pytest.raises(RuntimeError, match="the recursive query has ended"):
            questions.query("x")
        begun.release()
        return ""

    monkeypatch.setattr(rlm, "answer_query", lasting)
    options = {"sub_lm": str.upper, "children": "sandbox", "rlm_timeout": 3.0}
    interpreter = make(**options)
    said = str(interpreter.execute("rlm_query_batched(['a', 'b'])"))
    assert "the recursive query and all below it had 3 s (rlm_timeout) and were ended" in said
    assert place.sandboxes() == 1
    go_on.set()
    assert (
        interpreter.execute("print(llm_query('its own code goes on'))") == "ITS OWN CODE GOES ON\n"
    )


@pytest.mark.parametrize(
    ("status", "asked"), [(429, False), (503, False), (408, True), (504, True)]
)
def test_a_server_that_was_too_late_may_have_asked_its_model(
    status: int, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("FLEETCTL_LLM_MODEL", "tiny")
    error = line._error_of(status, {"error": {"message": "late"}}, b"", None)
    assert error.unasked is not asked  # type: ignore[attr-defined]
    with running(Model(faults=deque([Fault(status)]))) as model:
        server = ModelServer(model.url + "/v1", timeout_s=30.0)
        with pytest.raises(RuntimeError) as refused:
            server("x")
    assert isinstance(refused.value, ServerRefused) is not asked


def test_half_a_character_has_a_worst_case_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(line.__file__).parent))
    model = importlib.import_module("fleetctl_llm_rlm").Model(lambda *_: ("", {}), {}, None)
    assert model.worst([{"role": "user", "content": "half \ud83d"}]).tokens > 4096
