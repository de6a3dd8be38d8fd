"""Two accounts of one provider under one controller: each an emulated service of its own, with a
client, limits and sandboxes of its own. What ran where is asked of both services.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply import local_proposal
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.engine.engine import Engine
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs.blocks.template import Template
from fleetctl.wiring.account_registry import AccountRegistry, open_store
from tests.contracts.local_worlds import stop_supervisors
from tests.contracts.provider_worlds import eventually
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.modal.running import ModalEmulator
from tests.servers import fleets
from tests.servers.daytona_fleet import DURATIONS_S, USUAL
from tests.servers.fleets import BRISK, Tally, begins

OLD_S = 5_000.0  # beyond every time of grace
DAYTONA_SETTINGS = {"FLEETCTL_DAYTONA_QUICK_S": "0.3", "FLEETCTL_DAYTONA_CREATES_PER_S": "100"}
SLEEPS = Template(script="exec sleep 600")
STAYS = "\nimport time\ntime.sleep(600)"


class Clock(SystemClock):
    """Of this machine, and `ahead_s` of it."""

    ahead_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.ahead_s


class Pair:
    """Two services of one sort, `a` and `b`, and the Provider objects that lead to them. Nothing in
    the environment leads to either by itself.
    """

    def __init__(self, sort: str, stack: ExitStack, directory: Path) -> None:
        self.sort = sort
        self.services: dict[str, Any] = {}
        for name in ("a", "b"):
            made = ModalEmulator() if sort == "modal" else DaytonaEmulator()
            self.services[name] = stack.enter_context(made)
        for name in [name for name in os.environ if name.startswith(("DAYTONA_", "MODAL_"))]:
            del os.environ[name]
        if sort == "modal":
            self._set_modal(directory)
        else:
            self._set_daytona()

    def _set_modal(self, directory: Path) -> None:
        a, b = (self.services[name].env for name in ("a", "b"))
        profiles = directory / "modal.toml"
        profiles.write_text(
            f'[team-b]\nserver_url = "{b["MODAL_SERVER_URL"]}"\n'
            f'token_id = "{b["MODAL_TOKEN_ID"]}"\ntoken_secret = "{b["MODAL_TOKEN_SECRET"]}"\n'
        )
        self.secret = a["MODAL_TOKEN_SECRET"]
        os.environ |= {
            "MODAL_SERVER_URL": a["MODAL_SERVER_URL"],
            "MODAL_CONFIG_PATH": str(profiles),
            "MODAL_DISABLE_API_PROXY": "1",
            "FLEETCTL_MODAL_CONNECT_S": a["FLEETCTL_MODAL_CONNECT_S"],
            "TEAM_A_ID": a["MODAL_TOKEN_ID"],
            "TEAM_A_SECRET": self.secret,
        }
        fields = {"tokenIdEnv": "TEAM_A_ID", "tokenSecretEnv": "TEAM_A_SECRET"}
        self.specs = {"a": {"account": fields}, "b": {"account": {"profile": "team-b"}}}

    def _set_daytona(self) -> None:
        for service in self.services.values():
            service.set(durations_s=DURATIONS_S, **USUAL)
        a, b = (self.services[name].env for name in ("a", "b"))
        self.secret = a["DAYTONA_API_KEY"]
        os.environ |= DAYTONA_SETTINGS | {
            "DAYTONA_API_URL": a["DAYTONA_API_URL"],
            "FLEETCTL_DAYTONA_CONNECT_S": a["FLEETCTL_DAYTONA_CONNECT_S"],
            "TEAM_A_KEY": self.secret,
            "TEAM_B_KEY": b["DAYTONA_API_KEY"],
        }
        there = {"apiKeyEnv": "TEAM_B_KEY", "apiUrl": b["DAYTONA_API_URL"]}
        self.specs = {"a": {"account": {"apiKeyEnv": "TEAM_A_KEY"}}, "b": {"account": there}}

    def spec(self, name: str, **more: Any) -> dict[str, Any]:
        return {"type": self.sort, **self.specs[name], **more}

    def sandboxes(self, name: str, owner: str) -> list[dict[str, Any]]:
        """Every sandbox of this store that the service ever had."""
        found = self.services[name].state()["sandboxes"]
        tags = "tags" if self.sort == "modal" else "labels"
        return [one for one in found if one[tags].get("fleet") == owner]

    def live(self, name: str, owner: str) -> set[str]:
        """The runs whose sandboxes are there."""
        held = self.sandboxes(name, owner)
        if self.sort == "modal":
            return {str(one["name"]) for one in held if one["live"]}
        return {str(one["name"]) for one in held if one["state"] != "destroyed"}


class Fleet(fleets.Fleet):
    """A controller as `fleetctl up` makes it."""

    def __init__(self, home: Path, pair: Pair) -> None:
        self.home, self.pair, self.clock = home, pair, Clock()
        self.store = open_store(home, self.clock)
        secrets = SecretValues(self.store, os.environ)
        self.accounts = AccountRegistry(
            home, store_id=self.store.store_id, notify=self.told, environ=secrets.value
        )
        self.engine = Engine(
            store=self.store,
            providers=self.accounts.backends,
            clock=self.clock,
            settings=BRISK,
            accounts=self.accounts,
        )
        self._running = asyncio.ensure_future(self.engine.run())

    async def close(self) -> None:
        self.engine.stop()
        await self._running
        await self.accounts.close()
        self.store.close()
        stop_supervisors(self.home)

    def declare(self, name: str, **more: Any) -> None:
        self.apply_kind("Provider", f"team-{name}", self.pair.spec(name, **more))

    def live(self) -> list[dict[str, Any]]:
        owner = self.store.store_id
        return [{"name": run} for name in "ab" for run in sorted(self.pair.live(name, owner))]

    def live_at(self) -> dict[str, int]:
        return {name: len(self.pair.live(name, self.store.store_id)) for name in "ab"}

    def provider_status(self, name: str) -> dict[str, Any]:
        row = self.store.resources.get("Provider", name)
        return dict(json.loads(row.status or "{}")) if row is not None else {}

    async def fleetctl(self, *words: str) -> tuple[int, str, str]:
        out, talk = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
        code = await asyncio.to_thread(run_guarded, list(words), Screen(out, talk))
        out.flush()
        return code, out.buffer.getvalue().decode(), talk.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module", params=["modal", "daytona"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    before = dict(os.environ)
    with ExitStack() as stack:
        try:
            yield Pair(request.param, stack, tmp_path_factory.mktemp("accounts"))
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def play(home: Path, pair: Pair, tale: Callable[[Fleet], Any]) -> None:
    async def scene() -> None:
        fleet = Fleet(home, pair)
        try:
            await tale(fleet)
        finally:
            await fleet.close()

    asyncio.run(scene())


def order(fleet: Fleet, run: str) -> RunRequest:
    return RunRequest(
        run=run,
        sandbox=run,
        owner=fleet.store.store_id,
        uid="uid-of-nobody",
        resource="batchjob/forgotten",
        index=0,
        attempt=1,
        template=SLEEPS,
        template_hash="hash",
        params={},
        reusable=False,
    )


def test_each_run_lands_in_its_account_and_is_shown_under_its_name(home: Path, pair: Pair) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.declare("a")
        fleet.declare("b", limits={"maxConcurrent": 2})
        ordered = {"ordered": [{"provider": "team-b"}, {"provider": "team-a"}]}
        with Tally() as tally:
            # `b` is full by its own limit, so the rest runs over to `a`.
            template = {"python": tally.python(STAYS)}
            fleet.apply(template, tasks={"completions": 3}, parallelism=3, placement=ordered)
            await begins(tally, 3)
            assert fleet.live_at() == {"a": 1, "b": 2}
            assert fleet.status()["where"] == {"team-b": 2, "team-a": 1}
            handles = {run.provider for run in fleet.runs() if run.handle}
            assert handles == {"team-a", "team-b"}

            async def counted() -> bool:
                held = [fleet.provider_status(f"team-{it}").get("slots") for it in "ab"]
                return [it and it["used"] for it in held] == [1, 2]

            await eventually(counted, "both Provider objects counted what they hold")
            code, out, _ = await fleet.fleetctl("top", "providers", "-o", "json")
            assert code == 0
            assert {one["provider"] for one in json.loads(out)} >= {"team-a", "team-b"}
            # The accounts know nothing of each other.
            owned = {it: await fleet.engine.state.providers[f"team-{it}"].owned() for it in "ab"}
            assert {it: len(found) for it, found in owned.items()} == {"a": 1, "b": 2}
            fleet.delete()
            await fleet.gone()
            await fleet.nothing_lives()
        holds = [
            path
            for path in home.rglob("*")
            if path.is_file() and pair.secret.encode() in path.read_bytes()
        ]
        assert holds == []  # no credential is on the disk, whatever was applied

    play(home, pair, tale)


def test_a_sweep_of_one_account_never_touches_the_other(home: Path, pair: Pair) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.declare("a")
        fleet.declare("b")
        engine = fleet.engine

        async def both() -> bool:
            return {"team-a", "team-b"} <= set(engine.state.providers)

        await eventually(both, "both accounts were opened")
        # A sandbox that nobody remembers in each, and of the same name.
        for name in "ab":
            await engine.state.providers[f"team-{name}"].start(order(fleet, "forgotten"))
        code, out, said = await fleet.fleetctl("orphans", "-o", "json")
        assert code == 0, said
        # Beside sandboxes there are the snapshots that they were made of.
        told = {(one["provider"], one["run"]) for one in json.loads(out) if one["run"]}
        assert told == {("team-a", "forgotten"), ("team-b", "forgotten")}
        fleet.clock.ahead_s = OLD_S
        assert await sweep_orphans(engine.state, "team-a", engine.rate_limiters["team-a"]) == 1
        fleet.clock.ahead_s = 0.0

        async def gone_from_a() -> bool:
            return fleet.live_at()["a"] == 0

        await eventually(gone_from_a, "the sandbox in `a` was ended")
        assert fleet.live_at() == {"a": 0, "b": 1}
        code, out, said = await fleet.fleetctl(
            "orphans", "--provider", "team-b", "--delete", "--yes"
        )
        assert code == 0, said
        await fleet.nothing_lives()

    play(home, pair, tale)


def test_an_account_that_is_deleted_stays_until_nothing_runs_there(home: Path, pair: Pair) -> None:
    async def tale(fleet: Fleet) -> None:
        fleet.declare("b")
        with Tally() as tally:
            fleet.apply({"python": tally.python(STAYS)}, placement={"provider": "team-b"})
            await begins(tally)
            row = fleet.store.resources.get("Provider", "team-b")
            assert row is not None
            fleet.delete_kind("Provider", "team-b")
            fleet.apply(
                {"python": tally.python(STAYS)}, name="late", placement={"provider": "team-b"}
            )
            await fleet.waits("NoProvider", "late")

            async def in_use() -> bool:
                rows = [it for it in fleet.store.resources.list() if it.kind == "Provider"]
                return [json.loads(it.status)["message"] for it in rows] == [
                    "still holds something of batchjob/job"
                ]

            await eventually(in_use, "the account said who uses it")
            assert fleet.live_at() == {"a": 0, "b": 1}
            fleet.delete()
            await fleet.nothing_lives()
            await fleet.gone("team-b")

    play(home, pair, tale)


def test_missing_credentials_are_told_by_name_and_never_by_value(
    home: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: Mapping[str, Mapping[str, str]] = {
        "modal": {"tokenIdEnv": "NO_SUCH_ID", "tokenSecretEnv": "TEAM_A_SECRET"},
        "daytona": {"apiKeyEnv": "NO_SUCH_KEY"},
    }
    monkeypatch.delenv("NO_SUCH_ID", raising=False)

    async def tale(fleet: Fleet) -> None:
        spec = {"type": pair.sort, "account": fields[pair.sort]}
        fleet.apply_kind("Provider", "team-c", spec)
        fleet.apply({"script": "true"}, placement={"provider": "team-c"})
        status = await fleet.waits("KeyMissing")
        assert status["phase"] == "Pending"
        assert "provider `team-c` takes its credentials from `NO_SUCH_" in status["message"]
        assert "which is not set" in status["message"]
        code, out, _ = await fleet.fleetctl("doctor", "-o", "json")
        line = next(one for one in json.loads(out) if one["topic"] == "team-c" and not one["ok"])
        assert code == 1 and line["needed"]
        assert "`NO_SUCH_" in line["says"] and line["fix"].startswith("export NO_SUCH_")
        assert pair.secret not in out + json.dumps(status)

    play(home, pair, tale)


JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: job}
spec:
  completions: 2
  template: {script: "true", timeoutSeconds: 60}
  placement: {provider: NAME}
"""


def test_a_plan_goes_by_what_each_account_charges(
    home: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Modal, that is: Daytona's accounts do not tell their prices."""
    # A person waits three seconds for them; on a busy machine they come later.
    monkeypatch.setattr(local_proposal, "PRICES_S", 120.0)

    async def tale(fleet: Fleet) -> None:
        fleet.declare("a")
        file = home / "job.yaml"

        async def planned(name: str) -> dict[str, Any]:
            file.write_text(JOB.replace("NAME", name))
            words = ("plan", "-f", str(file), "-o", "json", "--allow-missing")
            code, out, said = await fleet.fleetctl(*words)
            assert code == 0, said
            return dict(json.loads(out))

        [told] = (await planned("team-a"))["prices"]
        live = told == "team-a: live rates of the account"
        assert live == (pair.sort == "modal")
        # Without credentials of its own nobody is asked, and the table has a date.
        [dated] = (await planned(pair.sort))["prices"]
        assert dated.startswith(f"{pair.sort}: ") and " of 20" in dated

    play(home, pair, tale)
