"""`fleetctl orphans` at every provider: what the store remembers is never an orphan, what another
store made is never ended by mistake, and what is deleted is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.specs.builtin import BUILT_IN
from tests.servers.verb_worlds import PROVIDERS, SLEEPS, VerbWorld, play, service


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_every_provider_that_is_built_in_is_asked() -> None:
    # A call that nobody remembers holds nothing. Hosts have their own test in tests/machines, and
    # jobs of Slurm end at their time limit.
    assert set(BUILT_IN) - {"endpoint", "ssh", "slurm"} == set(PROVIDERS)


async def listed(world: VerbWorld, *words: str) -> list[dict[str, Any]]:
    code, out, said = await world.fleetctl(
        "orphans", "--provider", world.name, "-o", "json", *words
    )
    assert code == 0, said
    return [one for one in json.loads(out) if one["kind"] == "sandbox"]


def test_only_what_nobody_remembers_is_listed_and_only_ours_is_ended(
    home: Path, provider: str
) -> None:
    async def tale(world: VerbWorld) -> None:
        remembered = await world.start(SLEEPS, run="remembered", uid="uid-1")
        world.record(remembered)
        await world.start(SLEEPS, run="forgotten", uid="uid-2")
        other = world.again("another-store")
        foreign = world.order(SLEEPS, run="foreign", uid="uid-3", owner="another-store")
        await world.begin(foreign, other)

        found = {one["run"]: one["ours"] for one in await listed(world)}
        assert found == {"forgotten": True, "foreign": False}
        assert await listed(world, "--older-than", "1h") == []
        code, _, said = await world.fleetctl("orphans", "--delete", "--provider", world.name)
        assert code == 3 and "add --yes" in said
        assert len(await listed(world)) == 2

        deleting = ("orphans", "--delete", "--yes", "--provider", world.name)
        code, out, said = await world.fleetctl(*deleting)
        assert (code, out.count(" deleted\n")) == (0, 1), said
        assert "of other stores left alone" in said
        assert [one["run"] for one in await listed(world)] == ["foreign"]

        code, out, _ = await world.fleetctl(*deleting, "--all-stores")
        assert (code, out.count(" deleted\n")) == (0, 1)
        assert await listed(world) == []
        await world.alive(remembered)

    play(home, provider, tale)


def test_one_is_named_by_its_id(home: Path, provider: str) -> None:
    async def tale(world: VerbWorld) -> None:
        for number in (1, 2):
            await world.start(SLEEPS, run=f"forgotten-{number}", uid=f"uid-{number}")
        first, second = await listed(world)
        code, _, _ = await world.fleetctl("orphans", first["id"], "--delete", "--yes")
        assert code == 0
        assert [one["id"] for one in await listed(world)] == [second["id"]]
        assert (await world.fleetctl("orphans", first["id"], "--delete", "--yes"))[0] == 4

    play(home, provider, tale)


def test_a_provider_that_does_not_answer_is_an_error_and_the_others_are_listed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("DAYTONA_API_KEY", "key")

    async def tale(world: VerbWorld) -> None:
        await world.start(SLEEPS, run="forgotten", uid="uid-1")
        code, out, said = await world.fleetctl("orphans")
        assert code == 1 and "127.0.0.1:9" in said
        assert "forgotten" in out

    play(home, "local", tale)


@pytest.mark.parametrize(
    ("secret", "why"),
    [("as-wrong", "Modal does not accept the token"), (None, "there is no token for Modal")],
    ids=["refused", "missing"],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
def test_who_cannot_be_asked_where_something_of_ours_may_be_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None, why: str, named: bool
) -> None:
    only = ("--provider", "modal") if named else ()

    async def tale(world: VerbWorld) -> None:
        await world.start(SLEEPS, run="forgotten", uid="uid-1")
        with monkeypatch.context() as token:
            if secret is None:
                token.delenv("MODAL_TOKEN_ID")
                token.delenv("MODAL_TOKEN_SECRET")
            else:
                token.setenv("MODAL_TOKEN_SECRET", secret)
            code, out, said = await world.fleetctl("orphans", "-o", "json", *only)
        assert (code, json.loads(out)) == (1, [])
        assert "error: " in said and why in said
        assert "hint: run `modal token new`" in said

    with service("modal"):
        play(home, "modal", tale)


def test_a_cloud_that_was_never_used_from_here_and_has_no_token_is_not_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "DAYTONA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(home / "none"))

    async def tale(world: VerbWorld) -> None:
        await world.start(SLEEPS, run="forgotten", uid="uid-1")
        code, out, said = await world.fleetctl("orphans")
        assert code == 0, said
        assert "modal: not asked: there is no token" in said
        assert "forgotten" in out

    play(home, "local", tale)


def test_what_the_index_of_daytona_still_shows_is_no_orphan(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        await world.start(SLEEPS, run="ended", uid="uid-1")
        await world.start(SLEEPS, run="forgotten", uid="uid-2")
        handles = {one["run"]: one["id"] for one in await listed(world)}
        emulator.set(list_lag_s=600.0)
        deleting = ("orphans", handles["ended"], "--delete", "--yes")
        code, _, said = await world.fleetctl(*deleting)
        assert code == 0, said
        assert [one["run"] for one in await listed(world)] == ["forgotten"]
        emulator.set(list_lag_s=0.0)

    with service("daytona") as emulator:
        play(home, "daytona", tale)
