"""Policies: what is denied is not stored, whoever writes it; what an exception lets pass, and for
how long; and that no expression takes longer than it may.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fleetctl.apply.change import Change
from fleetctl.apply.policies import evaluation
from fleetctl.apply.policies.expressions import (
    COST_MAX,
    ExpressionData,
    ExpressionError,
    compile_expression,
    evaluate_expression,
)
from fleetctl.apply.policies.judge import refuse_wrong, stored_judged
from fleetctl.apply.policies.report import PolicyDenied, warnings_of
from fleetctl.apply.predictions.predict import find_wrong
from fleetctl.apply.propose import propose_changes
from fleetctl.apply.request import ApplyOptions
from fleetctl.apply.write import commit
from fleetctl.apply.write.commit import ObjectEdits, manifest_with
from fleetctl.apply.write.scheduled import ScheduleMaker, by_hand
from fleetctl.apply.write.store_changes import write_changes
from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.budget import CostEstimate
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.stores.base import Store
from fleetctl.stores.read.read_only import open_scratch

NOW_S = datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()
DAY_S = 86400.0
EXEMPT = "policy.fleetctl.dev/exempt"


def document(kind: str, name: str, spec: Mapping[str, Any], **about: Any) -> str:
    metadata = {"name": name, **about}
    whole = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": kind, "metadata": metadata}
    return json.dumps({**whole, "spec": spec})


def policy(*rules: str | Mapping[str, Any], name: str = "limits", **more: Any) -> str:
    each = [{"expression": it} if isinstance(it, str) else it for it in rules]
    return document("Policy", name, {"rules": each, **more})


def job(name: str = "x", parallelism: int = 4, **about: Any) -> str:
    spec = {"completions": 2, "parallelism": parallelism, "template": {"script": "echo"}}
    return document("BatchJob", name, spec, **about)


SMALL = "object.kind != 'BatchJob' || object.spec.parallelism <= 8"


@pytest.fixture
def store() -> Store:
    return open_scratch()[0]


def apply(store: Store, *texts: str, at_s: float = NOW_S, **how: Any) -> list[Change]:
    manifests = load_manifests([Document(f"{at}.json", text, "/") for at, text in enumerate(texts)])
    changes = propose_changes(store, manifests, ApplyOptions(**how), at_s)
    with store.transaction():
        write_changes(store, changes, at_s)
    return changes


def keys(store: Store) -> set[str]:
    return {row.key for row in store.resources.list() if row.deleted_at_s is None}


def test_a_policy_binds_what_is_applied_beside_it_in_any_order(store: Store) -> None:
    with pytest.raises(PolicyDenied) as denied:
        apply(store, job(parallelism=9), policy({"expression": SMALL, "message": "at most 8"}))
    assert str(denied.value) == "batchjob/x is denied by policy/limits: at most 8"
    assert keys(store) == set()
    apply(store, job(), policy(SMALL))
    assert keys(store) == {"batchjob/x", "policy/limits"}


def test_what_is_there_stays_and_its_next_change_is_looked_at(store: Store) -> None:
    apply(store, job(parallelism=20), job("y"))
    apply(store, policy(SMALL))
    same = apply(store, job(parallelism=20))
    assert [it.outcome for it in same] == ["unchanged"]
    with pytest.raises(PolicyDenied, match="batchjob/x is denied"):
        apply(store, job(parallelism=20, labels={"team": "a"}))
    found = {it.key: it.verdicts for it in stored_judged(store, [], NOW_S)}
    assert [it.deny for it in found["batchjob/x"]] == [True] and found["batchjob/y"] == ()
    apply(store, job(parallelism=3))


@pytest.mark.parametrize(
    ("match", "bound"),
    [
        ({}, True),
        ({"kinds": ["BatchJob"]}, True),
        ({"kinds": ["Sweep", "TrainingRun"]}, False),
        ({"namespaces": ["prod"]}, True),
        ({"namespaces": ["dev"]}, False),
        ({"labels": {"team": "a"}}, True),
        ({"labels": {"team": "a", "tier": "1"}}, False),
    ],
)
def test_a_match_narrows_by_every_field(store: Store, match: Any, bound: bool) -> None:
    text = job(parallelism=9, namespace="prod", labels={"team": "a"})
    rule = "object.spec.parallelism <= 8"
    if bound:
        with pytest.raises(PolicyDenied):
            apply(store, policy(rule, match=match), text)
    else:
        apply(store, policy(rule, match=match), text)


def test_a_rule_that_warns_lets_pass_and_its_message_is_worked_out(store: Store) -> None:
    warn = {
        "expression": "has(object.metadata.labels.team)",
        "messageExpression": "object.metadata.name + ' names no team'",
        "action": "Warn",
    }
    changes = apply(store, policy(warn, match={"kinds": ["BatchJob"]}), job())
    assert warnings_of(changes) == ["batchjob/x: warning of policy/limits: x names no team"]


def test_rules_see_what_changes_and_what_it_was(store: Store) -> None:
    rules = (
        "old == null || object.spec.parallelism <= 2 * old.spec.parallelism",
        "plan.changes.all(c, c.path != 'completions')",
        "namespace != 'prod'",
        "plan.action != 'update' || plan.destroys == 0",
    )
    apply(store, policy(*rules, match={"kinds": ["BatchJob"]}), job())
    apply(store, job(parallelism=8))
    with pytest.raises(PolicyDenied, match=r"2 \* old.spec.parallelism` does not hold"):
        apply(store, job(parallelism=17))
    with pytest.raises(PolicyDenied, match=r"c\.path != 'completions'"):
        apply(store, job(parallelism=8).replace('"completions": 2', '"completions": 3'))
    with pytest.raises(PolicyDenied, match="namespace != 'prod'"):
        apply(store, job(namespace="prod"))


def test_costs_are_asked_for_where_they_are_known(store: Store) -> None:
    text = policy("cost.known && cost.usd <= 50.0", match={"kinds": ["BatchJob"]})
    apply(store, text)
    apply(store, job("later"), costs=None)  # nobody has reckoned: asked again by who has
    apply(store, job("free"), costs={})
    apply(store, job("cheap"), costs={"batchjob/cheap": CostEstimate(None, 0.0, 50.0)})
    for high in (50.01, None):
        with pytest.raises(PolicyDenied):
            apply(store, job("dear"), costs={"batchjob/dear": CostEstimate(1.0, 0.0, high)})
    assert keys(store) == {
        "policy/limits",
        *(f"batchjob/{it}" for it in ("later", "free", "cheap")),
    }


def test_what_cannot_be_told_is_denied_and_says_why(store: Store) -> None:
    for rule, why in (
        ("object.spec.timeout > 1", "`timeout` is not there; ask `has(...timeout)` first"),
        ("object.spec.parallelism", "it gives int, and must give true or false"),
        ("object.spec.parallelism + 'a' == 'b'", "No such overload"),
        ("1 / (object.spec.parallelism - 4) == 0", "division by zero"),
    ):
        with pytest.raises(PolicyDenied) as denied:
            apply(store, policy(rule, match={"kinds": ["BatchJob"]}), job())
        assert why in f"{denied.value}; {denied.value.hint}"


@pytest.mark.parametrize(
    ("said", "at_day", "terms", "passes"),
    [
        ("limits until 2026-11-20 because the old cluster ends", 0, {}, True),
        ("limits until 2026-11-20 because of it; other until 2026-11-02 because", 19, {}, False),
        ("limits until 2026-11-20 because the old cluster ends", 19, {}, True),
        ("limits until 2026-11-20 because the old cluster ends", 20, {}, False),
        ("limits until 2027-11-20 because the old cluster ends", 0, {}, False),
        ("limits until 2027-11-20 because we say so", 0, {"maxDays": 400}, True),
        ("limits until 2026-11-20 because we say so", 0, {"allowed": False}, False),
        ("other until 2026-11-20 because the old cluster ends", 0, {}, False),
        ("limits until 2026-11-31 because of a day that is not", 0, {}, False),
        ("limits for ever", 0, {}, False),
    ],
)
def test_an_exception_has_a_day_and_a_reason(
    store: Store, said: str, at_day: int, terms: Any, passes: bool
) -> None:
    apply(store, policy(SMALL, exemptions=terms))
    text, at_s = job(parallelism=9, annotations={EXEMPT: said}), NOW_S + at_day * DAY_S
    if not passes:
        with pytest.raises(PolicyDenied):
            apply(store, text, at_s=at_s)
        assert "batchjob/x" not in keys(store)
        return
    [warning] = warnings_of(apply(store, text, at_s=at_s))
    assert warning.startswith("batchjob/x is exempt from policy/limits")
    assert warning.endswith(f"until {said[13:23]}, {said[24:]})")
    # It ends, and the object stays until somebody changes it.
    later_s = at_s + 500 * DAY_S
    assert apply(store, text, at_s=later_s)[0].outcome == "unchanged"
    with pytest.raises(PolicyDenied, match="its exception ended on 202"):
        apply(store, text.replace('"completions": 2', '"completions": 3'), at_s=later_s)


def test_every_writer_is_bound(store: Store) -> None:
    template = json.loads(job(parallelism=4))["spec"]
    schedule = document(
        "Schedule", "nightly",
        {"schedule": "0 3 * * *", "template": {"kind": "BatchJob", "spec": template}},
    )  # fmt: skip
    apply(store, job(), schedule)
    big = schedule.replace('"parallelism": 4', '"parallelism": 9')
    apply(store, policy(SMALL))
    # A schedule that makes what is denied is denied itself, before any night.
    with pytest.raises(PolicyDenied, match="schedule/nightly is denied by policy/limits"):
        apply(store, big)
    # `set` and `scale` go by edits of the stored object.
    edited = manifest_with(store, "BatchJob", "x", ObjectEdits(fields=("parallelism=9",)))
    with pytest.raises(PolicyDenied):
        commit.apply_manifests(store, [edited], NOW_S)
    # What a schedule makes, under a policy that came after it.
    apply(store, policy("object.kind != 'BatchJob' || object.spec.parallelism <= 3", name="new"))
    row = store.resources.get("Schedule", "nightly")
    assert row is not None
    with pytest.raises(FleetctlError, match="is denied by policy/new"), store.transaction():
        ScheduleMaker(store, {}).make(by_hand(row, "job", "now"), None, NOW_S)
    assert keys(store) == {"batchjob/x", "schedule/nightly", "policy/limits", "policy/new"}


def test_objects_of_every_kind_are_looked_at(store: Store) -> None:
    about = {
        "Volume": {}, "Secret": {"fromEnv": ["KEY"]}, "Budget": {"maxCost": 5},
        "Provider": {"type": "modal"}, "Source": {"git": {"url": "https://example.org/x.git"}},
        "Endpoint": {"servers": [{"url": "http://127.0.0.1:1/v1"}], "models": {"m": "m"}},
    }  # fmt: skip
    texts = [document(kind, kind.lower(), spec) for kind, spec in about.items()]
    apply(store, policy("object.metadata.name == object.metadata.name", name="all"), *texts)
    with pytest.raises(PolicyDenied) as denied:
        apply(store, policy("object.kind == 'Policy'", name="none"), *_labelled(texts))
    assert str(denied.value).count("is denied by policy/none") == len(about)


def _labelled(texts: list[str]) -> list[str]:
    values = [json.loads(text) for text in texts]
    return [
        json.dumps({**it, "metadata": {**it["metadata"], "labels": {"a": "b"}}}) for it in values
    ]


def test_a_policy_that_cannot_be_read_denies_and_one_that_goes_binds_no_more(
    store: Store,
) -> None:
    apply(store, policy(SMALL))
    row = store.resources.get("Policy", "limits")
    assert row is not None
    with store.transaction():
        newer = replace(row, spec='{"rules": [], "newer": 1}')
        store.resources.put(newer, expected_version=row.version)
    with pytest.raises(PolicyDenied, match="cannot read it"):
        apply(store, job())
    commit.delete_object(store, "Policy", "limits", NOW_S)
    apply(store, job(parallelism=99))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("object.spec.parallelism <=", "column 27: "),
        ("objct.spec.x", "there is no variable `objct`"),
        ("object.x.siz() > 1", "there is no function `siz`"),
        ("lists.range(1000000000).size() > 1", "there is no variable `lists`"),
        ("x", "there is no variable `x`"),
        ("[1].all(a, [1].all(b, [1].all(c, [1].all(d, a == d))))", "more than 3 loops"),
    ],
)
def test_what_is_no_expression_is_told_at_its_place(text: str, why: str) -> None:
    source = json.dumps(json.loads(policy("true", text)), indent=1)
    manifests = load_manifests([Document("p.json", source, "/")])
    with pytest.raises(ManifestErrors) as wrong:
        refuse_wrong(manifests, find_wrong)
    line = next(at for at, it in enumerate(source.splitlines(), 1) if json.dumps(text) in it)
    assert str(wrong.value).startswith(f"p.json:{line}:")
    assert "spec.rules[1].expression is not an expression: " + why in str(wrong.value)


def nested(rounds: int) -> dict[str, Any]:
    return {"object": {"spec": {"items": [{"x": at} for at in range(rounds)]}, "few": [1, 2]}}


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.items.all(a, object.spec.items.all(b, a.x + b.x >= 0))",
        "object.spec.items.map(a, a.x).size() > 0",
        "object . spec . items . filter(a, a.x > 1) . map(b, b).size() > 0",
        "[1, 2].all(a, object.spec.items.map(b, object.spec.items).size() > 0)",
        "(object.spec.items).all(a, ['}', '.all('].exists(b, object.spec.items.exists(c, c == a)))",
        "object.spec.items.all(a, size(object) > 0)",
    ],
)
def test_an_expression_that_may_take_long_is_not_begun(text: str) -> None:
    """Each would take from a minute to days; whether it was begun is seen by its end."""
    data = ExpressionData(nested(100_000))
    assert data.cost(compile_expression(text)) > COST_MAX
    with pytest.raises(ExpressionError, match="times as long as an expression may"):
        evaluate_expression(compile_expression(text), data)


@pytest.mark.parametrize(
    "text",
    [
        "object.few.all(a, a < 3)",  # what it goes through is short, whatever lies beside it
        "object.few.all(a, object.few.exists(b, a == b))",
        "'.all(.all(.all(' != 'x' && size(object.spec.items) == 1000",
        "object.spec.items.all(a, a.x < 1000)",
    ],
)
def test_an_expression_of_short_lists_is_looked_at_beside_long_ones(text: str) -> None:
    data = ExpressionData(nested(1000))
    assert data.cost(compile_expression(text)) <= COST_MAX
    began_s = time.process_time()
    assert evaluate_expression(compile_expression(text), data) is True
    assert time.process_time() >= began_s


GROWING = "[object.spec.template.python]" + ".map(x, x + x + x + x)" * 12 + ".size() > 0"
MANY = " || ".join(["object.spec.template.python.matches('(a|aa)+b')"] * 80)


@pytest.mark.parametrize(
    ("text", "why"), [(GROWING, r"takes more than (16 MB of memory|50 ms)"), (MANY, "50 ms of CPU")]
)
def test_an_expression_of_a_large_text_takes_no_more_than_it_may(text: str, why: str) -> None:
    subject = evaluation.Subject({"object": {"spec": {"template": {"python": "a" * 900_000}}}})
    with pytest.raises(ExpressionError, match=why):
        evaluation.value_of(text, subject)
    assert evaluation.value_of("object.spec.template.python.size() > 1", subject).value is True


def test_an_expression_that_is_ended_for_many_objects_is_not_begun_for_more() -> None:
    many = [
        evaluation.Question(GROWING, evaluation.Subject({"object": {"spec": it}}))
        for it in ({"template": {"python": "a" * 100_000 + str(at)}} for at in range(200))
    ]
    evaluation.look_up(many)
    with pytest.raises(ExpressionError, match="also for other objects"):
        evaluation.value_of(GROWING, many[-1].subject)


def test_who_puts_questions_off_waits_for_nothing_and_gets_them(store: Store) -> None:
    apply(store, policy("object.spec.parallelism <= 2"))
    with evaluation.put_off() as questions:
        (change,) = propose_changes(
            store, load_manifests([Document("a.json", job(), "/")]), ApplyOptions(), NOW_S
        )
    assert change.verdicts == () and len(questions) == 1
    evaluation.look_up(questions.values())
    with evaluation.put_off() as questions:
        (change,) = propose_changes(
            store, load_manifests([Document("a.json", job(), "/")]), ApplyOptions(), NOW_S
        )
    assert [it.deny for it in change.verdicts] == [True] and not questions


def test_a_process_that_was_killed_is_another_one_for_the_next_question() -> None:
    subject = evaluation.Subject({"object": {"x": 1}})
    assert evaluation.value_of("object.x == 1", subject).value is True
    child = evaluation._process.child
    assert child is not None
    child.kill()
    child.wait()
    assert evaluation.value_of("object.x == 2", subject).value is False
