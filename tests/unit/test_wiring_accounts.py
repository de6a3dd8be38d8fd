"""Backends of further accounts: one each, with the account that its object says now."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.account import Account, account_of, built_in
from fleetctl.providers.modal.connection import modal_credentials
from fleetctl.providers.paths import jobs_dir, providers_in
from fleetctl.specs.builtin import BUILT_IN
from fleetctl.wiring.account_registry import AccountRegistry
from fleetctl.wiring.plugins import plugin_of

REPOSITORY = Path(__file__).parents[2]


def accounts(home: Path) -> AccountRegistry:
    return AccountRegistry(home, store_id="s", notify=print, environ={"B_KEY": "dtn_1"}.get)


def test_a_provider_with_an_sdk_has_an_extra_and_none_knows_another() -> None:
    """What pyproject.toml says of them, which no import could find out."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    extras = set(project["project"]["optional-dependencies"])
    assert {name for name in BUILT_IN if plugin_of(name).sdk} <= extras
    contracts = {it["name"]: it for it in project["tool"]["importlinter"]["contracts"]}
    apart = contracts["Providers do not know each other"]["modules"]
    assert set(apart) == {f"fleetctl.providers.{name}" for name in BUILT_IN}
    unnamed = contracts["Only the wiring names concrete stores and providers"]["forbidden_modules"]
    assert set(apart) <= set(unnamed)


def test_each_account_is_a_backend_of_its_own_and_stays_the_same_one(tmp_path: Path) -> None:
    made = accounts(tmp_path)
    spec = {"type": "modal", "account": {"profile": "team-b"}}
    first = made.open("team-b", spec)
    assert first is not made.backends["modal"]
    assert made.open("team-b", spec | {"account": {"profile": "other"}}) is first
    assert made.open("modal", {"limits": {}}) is made.backends["modal"]
    assert made.open("team-c", {"type": "daytona"}) not in (first, made.backends["daytona"])
    asyncio.run(made.close())


def test_what_an_account_keeps_lies_beside_what_is_built_in(tmp_path: Path) -> None:
    """No name of a person's can be that of another file of the state directory."""
    assert jobs_dir(tmp_path, "modal") == tmp_path / "modal" / "jobs"
    assert jobs_dir(tmp_path, "store") == tmp_path / "accounts" / "store" / "jobs"
    for name in ("modal", "store"):
        jobs_dir(tmp_path, name).mkdir(parents=True)
    (tmp_path / "store").mkdir()
    assert providers_in(tmp_path) == ["modal", "store"]


def test_a_credential_is_looked_up_when_it_is_needed_and_is_in_no_text() -> None:
    fields = {"type": "daytona", "account": {"apiKeyEnv": "B_KEY"}}
    values = {"B_KEY": "dtn_1"}
    account = account_of("team-b", fields, values.get)
    assert account.value("apiKeyEnv") == "dtn_1"
    assert "dtn_1" not in repr(account) + account.where() + account.hint("")
    values.clear()
    with pytest.raises(Refused, match="takes its credentials from `B_KEY`, which is not set"):
        account.value("apiKeyEnv")


def test_two_accounts_are_equal_by_what_is_said_of_them() -> None:
    """A connection asks so whether it must be made anew."""
    fields = {"type": "modal", "account": {"profile": "b"}}
    assert account_of("b", fields, {}.get) == account_of("b", fields, {"X": "y"}.get)
    assert account_of("b", fields) != account_of("b", {"type": "modal"})


def test_a_profile_is_read_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = tmp_path / "modal.toml"
    profiles.write_text('[b]\nserver_url = "https://b.example,https://c.example"\n')
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(profiles))
    monkeypatch.setenv("MODAL_SERVER_URL", "https://a.example")
    ours = Account("team-b", "modal", {"profile": "b"})
    assert modal_credentials.server_url(ours) == "https://b.example"
    assert modal_credentials.server_url(built_in("modal")) == "https://a.example"
    with pytest.raises(Refused, match="from profile `b`, and") as caught:
        modal_credentials.token_location(ours)
    assert caught.value.hint == "modal token new --profile b"
