"""`fleetctl_llm`, which tasks import, before an emulated model server, the gateway, or neither."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fleetctl.guest.checkpoints.begin import begin_training
from fleetctl.guest.library.fleetctl_llm_queries import parse_query
from fleetctl.guest.ship.library import read_library
from fleetctl.guest.task.task import Sandbox
from tests.emulators.llm.running import running
from tests.emulators.llm.server import Fault, Model, embedding

Asking = Callable[[], Any]


def asking_directly(model: Model, monkeypatch: pytest.MonkeyPatch, ask: Asking) -> Any:
    """What `ask` returns while the server that `model` describes is there."""

    with running(model):
        monkeypatch.setenv("OPENAI_BASE_URL", model.url + "/v1")
        monkeypatch.setenv("FLEETCTL_LLM_MODEL", "tiny")
        return ask()


def test_a_batch_is_asked_at_once_and_its_answers_keep_their_order(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(slots=64, together=16)
    prompts = [f"p{number}" for number in range(16)]
    answers = asking_directly(model, monkeypatch, lambda: llm.llm_query_batched(prompts))
    assert answers == [f"echo: {prompt}" for prompt in prompts]
    assert model.most_at_once == 16


def test_concurrency_bounds_what_is_asked_at_once(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(slots=64, together=3)

    def ask() -> None:
        llm.llm_query_batched(["p"] * 9, concurrency=3)

    asking_directly(model, monkeypatch, ask)
    assert (model.most_at_once, len(model.asked)) == (3, 9)


def test_a_query_hands_on_its_system_text_and_parameters(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()

    def ask() -> str:
        return str(llm.llm_query("hi", system="be short", temperature=0, max_tokens=5))

    assert asking_directly(model, monkeypatch, ask) == "echo: hi"
    (asked,) = model.asked
    assert asked["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hi"},
    ]
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("tiny", 0, 5)


def test_texts_are_embedded_by_one_request(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    vectors = asking_directly(model, monkeypatch, lambda: llm.embed(["b", "a", "c"]))
    assert vectors == [embedding("b"), embedding("a"), embedding("c")]
    assert [one["input"] for one in model.asked] == [["b", "a", "c"]]


@pytest.mark.parametrize("prompts", [["fine", " "], ["fine", ""], ["fine", None], "a text"])
def test_an_empty_prompt_is_an_error_before_anything_is_asked(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch, prompts: Any
) -> None:
    model = Model()

    def ask() -> None:
        with pytest.raises(ValueError, match=r"prompt\[1\] is|prompts is a text"):
            llm.llm_query_batched(prompts)
        with pytest.raises(ValueError, match="prompt is"):
            llm.llm_query("")

    asking_directly(model, monkeypatch, ask)
    assert model.asked == []


def test_nothing_asked_is_nothing_answered(llm: ModuleType) -> None:
    assert llm.llm_query_batched([]) == llm.embed([]) == llm.llm_map(str, []) == []


def test_failures_are_told_together_after_all_were_asked(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    model.faults.extend([Fault(500), Fault("wrong-json")])

    def ask() -> None:
        with pytest.raises(RuntimeError, match=r"^2/4 failed: prompt\[0\]: .*500.*; prompt\[1\]: "):
            llm.llm_query_batched(["a", "b", "c", "d"], concurrency=1)

    asking_directly(model, monkeypatch, ask)
    assert len(model.asked) == 4


@pytest.mark.parametrize(
    ("on_error", "instead"),
    [
        ("original", "a"),
        ("text", "[ERROR] the model server answered 500"),
        ({"text": "nothing"}, "nothing"),
    ],
)
def test_what_failed_is_replaced_where_that_is_asked_for(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch, on_error: Any, instead: str
) -> None:
    model = Model()
    model.faults.append(Fault(500))

    def ask() -> Any:
        return llm.llm_query_batched(["a", "b"], concurrency=1, on_error=on_error)

    assert asking_directly(model, monkeypatch, ask) == [instead, "echo: b"]


def test_a_map_keeps_the_item_whose_chain_failed(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chain(item: str) -> str:
        answer = str(llm.llm_query(item))
        if item == "odd":
            raise ValueError("not as it should be")
        return answer.upper()

    def ask() -> Any:
        return llm.llm_map(chain, ["one", "odd", "two"], on_error="original")

    answers = asking_directly(Model(), monkeypatch, ask)
    assert answers == ["ECHO: ONE", "odd", "ECHO: TWO"]


def test_an_answer_that_a_filter_took_away_is_an_error(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(says=lambda _: "", finish="content_filter")

    def ask() -> Any:
        with pytest.raises(RuntimeError, match="a content filter took the model's answer away"):
            llm.llm_query("a")
        return llm.llm_query("a", on_error="original")

    assert asking_directly(model, monkeypatch, ask) == "a"


def test_a_wait_that_a_server_asks_for_is_in_the_error(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    model.faults.append(Fault(429, retry_after="86400"))

    def ask() -> None:
        with pytest.raises(RuntimeError, match=r"it asks to wait \(Retry-After: 86400\)"):
            llm.llm_query("a")

    asking_directly(model, monkeypatch, ask)


def test_an_unknown_on_error_says_which_there_are(llm: ModuleType) -> None:
    with pytest.raises(ValueError, match=r'must be "raise", "original", "text" or \{"text": ...\}'):
        llm.llm_query("hi", on_error="ignore")


def test_a_dead_server_is_not_trained_on(llm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(slots=64)
    model.faults.extend([Fault(503)] * 40)

    def ask() -> None:
        for _ in range(19):  # too few to tell
            assert llm.llm_query("a", on_error="original") == "a"
        with pytest.raises(llm.TooManyFallbacks, match=r"^20 of 20 calls .* is 0\.05: .*503"):
            llm.llm_query("a", on_error="original")

    asking_directly(model, monkeypatch, ask)


def test_a_few_failures_of_a_large_batch_are_no_dead_server(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they come first: the share is of all that the batch will ask."""
    model = Model(slots=64)
    model.faults.extend([Fault(503)] * 4)

    def ask() -> Any:
        return llm.llm_query_batched(["a"] * 80, concurrency=2, on_error="original")

    answers = asking_directly(model, monkeypatch, ask)
    assert sorted(answers) == ["a"] * 4 + ["echo: a"] * 76


def test_without_endpoints_the_field_is_named(llm: ModuleType) -> None:
    for ask in (llm.llm_query, lambda it: llm.llm_query_batched([it]), lambda it: llm.embed([it])):
        with pytest.raises(RuntimeError, match=r"`template.endpoints: \[NAME\]` is missing"):
            ask("hi")


def test_the_next_task_of_a_sandbox_asks_by_its_own_token_and_counts_anew(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    model.faults.extend([Fault(503)] * 30)

    def ask() -> None:
        for token in ("one", "two"):
            monkeypatch.setenv("OPENAI_API_KEY", token)
            for _ in range(15):
                assert llm.llm_query("a", on_error="original") == "a"

    asking_directly(model, monkeypatch, ask)


def test_a_sandbox_that_is_kept_finds_the_helpers_at_one_place(tmp_path: Path) -> None:
    order = {"library": {"helper.py": ""}}
    variables = {"PYTHONPATH": "/mine"}
    before = list(sys.path)
    try:
        for _ in range(3):
            added, _ = begin_training(
                order, "", str(tmp_path / "python"), variables, lambda _: None
            )
            variables |= added
        assert variables["PYTHONPATH"] == f"/mine:{tmp_path}/python"
        assert sys.path == [*before, f"{tmp_path}/python"]
    finally:
        sys.path[:] = before


def test_what_is_shipped_is_read_by_old_pythons() -> None:
    files = read_library(models=True)
    assert "fleetctl_llm.py" in files and len(files) == 6
    for text in files.values():
        ast.parse(text, feature_version=(3, 8))


@pytest.mark.parametrize(
    ("prompt", "context", "words"),
    [
        ({"query": "x", "contxt": "y"}, "", "prompt has `contxt`"),
        ({"query": " "}, "", "must be a text that is not empty"),
        ("x", 3, "context of prompt is a int"),
    ],
)
def test_invalid_arguments_of_a_recursive_query_are_refused(
    prompt: Any, context: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        parse_query(prompt, context, "prompt")


def test_a_recursive_query_without_dspy_says_how_the_image_gets_it(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dspy", None)
    model = Model()
    for ask in (llm.rlm_query, lambda prompt: llm.rlm_query_batched([prompt])):
        with pytest.raises(RuntimeError, match=r"`image: \{pip: \['dspy>=3.4'\]\}`"):
            asking_directly(model, monkeypatch, lambda ask=ask: ask("x"))
    assert model.asked == []


def run_task(code: str) -> tuple[int, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return Sandbox([]).run(code, {}, events.append), events


def test_a_python_task_has_the_names_and_its_own_definition_wins(
    llm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = "SUBMIT(one=llm_query('hi'), more=llm_query_batched(['a', 'b']))"
    code, events = asking_directly(Model(), monkeypatch, lambda: run_task(asks))
    assert (code, json.loads(events[0]["json"])) == (
        0,
        {"one": "echo: hi", "more": ["echo: a", "echo: b"]},
    )
    code, events = run_task("llm_query = lambda prompt: 'mine'\nSUBMIT(one=llm_query('hi'))")
    assert json.loads(events[0]["json"]) == {"one": "mine"}


@pytest.mark.parametrize("name", ["llm_query", "llm_query_batched", "rlm_query"])
def test_a_python_task_without_endpoints_says_what_is_missing(name: str) -> None:
    code, (error,) = run_task(f"{name}('hi')")
    assert code == 1
    assert error["message"].endswith(
        f"{name}: the task has no model endpoint: `template.endpoints: [NAME]` is missing"
    )
