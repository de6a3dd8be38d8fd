"""Where the values of secrets come from, and where they never are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.controllers.model import Resource
from fleetctl.engine.execute.secrets import (
    ANY_NAMESPACE,
    SECRET_BYTES_MAX,
    AllowList,
    ResolvedSecrets,
    SecretValues,
)
from fleetctl.engine.sleeping import nudge_starts
from fleetctl.specs.kinds.registry import KINDS, dump_spec
from fleetctl.stores.sqlite.store import SqliteStore, open_memory_store
from tests.unit.engine.fake_world import Fleet, ManualClock, tasks

VALUE = "hunter2-canary"


@pytest.fixture
def store() -> SqliteStore:
    return open_memory_store(ManualClock())


def declare(store: SqliteStore, **spec: Any) -> None:
    text = dump_spec(KINDS["Secret"].spec.model_validate(spec))
    row = Resource("u1", "Secret", "keys", 1, 0, text, "", {}, {}, 1.0)
    with store.transaction():
        store.resources.put(row, expected_version=None)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda at: None, "make the file, or fix the path"),
        (lambda at: at.symlink_to(at.parent / "other"), "a link is not followed"),
        (lambda at: at.mkdir(), "copy it to a file of your own"),
        (lambda at: at.write_bytes(b"\xff"), "encode it"),
    ],
    ids=["missing", "link", "directory", "bytes"],
)
def test_a_file_that_cannot_be_read_says_what_would_be_right(
    store: SqliteStore, tmp_path: Path, make: Callable[[Path], None], hint: str
) -> None:
    make(tmp_path / "key")
    declare(store, fromFile={"KEY": str(tmp_path / "key")})
    assert hint in str(why(SecretValues(store, {})).hint)


def why(values: SecretValues) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        values.resolve(("keys",))
    assert caught.value.reason == "SecretMissing"
    return caught.value


def test_values_come_from_the_controllers_environment(store: SqliteStore) -> None:
    declare(store, fromEnv=["KEY"])
    assert SecretValues(store, {"KEY": VALUE, "OTHER": "x"}).resolve(("keys",)).values == {
        "KEY": VALUE
    }


def test_a_secret_is_that_of_the_namespace_that_asks(store: SqliteStore) -> None:
    for number, (namespace, variable) in enumerate((("default", "THEIRS"), ("team", "KEY"))):
        text = dump_spec(KINDS["Secret"].spec.model_validate({"fromEnv": [variable]}))
        row = Resource(f"u{number}", "Secret", "keys", 1, 0, text, "", {}, {}, 1.0)
        with store.transaction():
            store.resources.put(replace(row, namespace=namespace), expected_version=None)
    values = SecretValues(store, {"KEY": VALUE, "THEIRS": "another"})
    assert values.resolve(("keys",), "team").values == {"KEY": VALUE}
    with pytest.raises(Unavailable, match="secret/keys -n other is not declared"):
        values.resolve(("keys",), "other")


@pytest.mark.parametrize(
    ("namespace", "variable", "may"),
    [
        ("team-a", "KEY", True),
        ("team-b", "KEY", False),
        ("team-b", "PROXY", True),
        ("team-a", "OTHER", False),
        ("team-a", "CLOUD", False),
    ],
)
def test_a_namespace_reads_what_is_listed_for_it_and_no_key_of_an_account(
    store: SqliteStore, namespace: str, variable: str, may: bool
) -> None:
    listed = {"team-a": frozenset({"KEY", "CLOUD"}), ANY_NAMESPACE: frozenset({"PROXY"})}
    allowed = AllowList(listed, {}, lambda: frozenset({"CLOUD"}))
    text = dump_spec(KINDS["Secret"].spec.model_validate({"fromEnv": [variable]}))
    row = Resource("u", "Secret", "keys", 1, 0, text, "", {}, {}, 1.0, namespace=namespace)
    with store.transaction():
        store.resources.put(row, expected_version=None)
    environ = dict.fromkeys(("KEY", "PROXY", "OTHER", "CLOUD"), VALUE)
    values = SecretValues(store, environ, allowed=allowed)
    values.learn(environ)  # what one person's shell brought is for that list, too
    if may:
        assert values.resolve(("keys",), namespace).values == {variable: VALUE}
        return
    with pytest.raises(Unavailable) as caught:
        values.resolve(("keys",), namespace)
    assert f"`{variable}`" in str(caught.value) and VALUE not in str(caught.value)


def test_a_secret_that_an_account_keeps_is_for_whom_it_is_listed(store: SqliteStore) -> None:
    declare(store, fromProvider="team-key")
    for listed, refused in (({}, True), ({"default": frozenset({"team-key"})}, False)):
        values = SecretValues(store, {}, allowed=AllowList({}, listed, frozenset))
        found = values.resolve(("keys",))
        assert found.refs_at("kubernetes", guards_secrets=True) == ("team-key",)
        if refused:
            with pytest.raises(Refused, match="none that this namespace may have"):
                found.refs_at("modal", guards_secrets=False)
        else:
            assert found.refs_at("modal", guards_secrets=False) == ("team-key",)


def test_what_an_apply_brought_is_preferred(store: SqliteStore) -> None:
    declare(store, fromEnv=["KEY"])
    values = SecretValues(store, {"KEY": "old"})
    values.learn({"KEY": VALUE})
    assert values.resolve(("keys",)).values == {"KEY": VALUE}


def test_a_missing_variable_is_waited_for_and_the_hint_says_how(store: SqliteStore) -> None:
    declare(store, fromEnv=["KEY"])
    error = why(SecretValues(store, {}))
    assert str(error) == "secret/keys needs KEY, which the controller does not have"
    assert "export KEY=" in error.hint


def test_a_secret_that_nobody_declared_is_waited_for(store: SqliteStore) -> None:
    assert str(why(SecretValues(store, {}))) == "secret/keys is not declared"


def test_a_file_gives_its_text_without_the_last_newline(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{VALUE}\n\n")
    declare(store, fromFile={"KEY": str(file)})
    assert SecretValues(store, {}).resolve(("keys",)).values == {"KEY": f"{VALUE}\n"}


def test_a_secret_of_the_provider_is_passed_on_by_its_name(store: SqliteStore) -> None:
    declare(store, fromProvider="wandb-secret")
    found = SecretValues(store, {}).resolve(("keys",))
    assert (dict(found.values), found.refs) == ({}, ("wandb-secret",))


def nothing(path: Path) -> None:
    """The file is not there."""


def big(path: Path) -> None:
    path.write_bytes(b"x" * (SECRET_BYTES_MAX + 1))


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def link(path: Path) -> None:
    path.with_name("real").write_text(VALUE)
    path.symlink_to("real")


@pytest.mark.parametrize("make", [nothing, Path.mkdir, os.mkfifo, link, big, binary])
def test_a_file_that_is_none_or_too_much_is_waited_for(
    store: SqliteStore, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "key")
    declare(store, fromFile={"KEY": str(tmp_path / "key")})
    assert VALUE not in str(why(SecretValues(store, {})))


def test_no_text_of_the_object_shows_a_value(store: SqliteStore) -> None:
    values = SecretValues(store, {"KEY": VALUE})
    values.learn({"KEY": VALUE})
    assert VALUE not in repr(values) + str(values)


async def test_a_run_gets_the_values_and_no_record_does() -> None:
    found = {"KEY": VALUE}
    async with Fleet(secrets=lambda names, _namespace: ResolvedSecrets(found, ("kept",))) as fleet:
        await fleet.apply("BatchJob", "job", job_with_secret())
        order = fleet.local.orders[fleet.local.run(0)]
        assert (order.secrets, order.secret_refs) == (found, ("kept",))
        assert VALUE not in repr(order)
        fleet.local.finish(0)
        await fleet.settle()
        dump = "\n".join((*fleet.database.state.iterdump(), *fleet.database.events.iterdump()))
        assert VALUE not in dump


async def test_env_goes_before_a_secret_of_the_same_name() -> None:
    found = {"KEY": VALUE, "OTHER": "other"}
    async with Fleet(secrets=lambda _names, _namespace: ResolvedSecrets(found)) as fleet:
        job = job_with_secret()
        job["template"] |= {"env": {"KEY": "of-env"}}
        await fleet.apply("BatchJob", "job", job)
        order = fleet.local.orders[fleet.local.run(0)]
        assert (order.secrets, order.template.env) == ({"OTHER": "other"}, {"KEY": "of-env"})


async def test_a_run_waits_for_its_secret_and_starts_once_there_is_word_of_it() -> None:
    found: dict[str, str] = {}

    def resolve(names: tuple[str, ...], _namespace: str) -> ResolvedSecrets:
        if not found:
            raise Unavailable("secret/keys needs KEY", reason="SecretMissing")
        return ResolvedSecrets(found)

    async with Fleet(secrets=resolve) as fleet:
        await fleet.apply("BatchJob", "job", job_with_secret())
        assert fleet.status("job")["reason"] == "SecretMissing"
        found["KEY"] = VALUE
        await fleet.settle()
        assert fleet.local.orders == {}
        nudge_starts(fleet.engine.state, "SecretMissing")
        await fleet.settle()
        assert fleet.local.working() == [0]


async def test_a_bug_in_finding_secrets_holds_up_this_start_only() -> None:
    def resolve(names: tuple[str, ...], _namespace: str) -> ResolvedSecrets:
        raise KeyError("a bug")

    async with Fleet(secrets=resolve) as fleet:
        await fleet.apply("BatchJob", "job", job_with_secret())
        assert fleet.status("job")["reason"] == "StartUnknown"
        await fleet.apply("BatchJob", "other", tasks(1))
        assert len(fleet.local.orders) == 1
        await fleet.delete("BatchJob", "job")
        assert fleet.names() == ["other"]


def job_with_secret() -> dict[str, Any]:
    return tasks(1, template={"python": "SUBMIT(ok=True)", "secrets": ["keys"]})
