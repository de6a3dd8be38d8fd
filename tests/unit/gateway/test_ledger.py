"""What the ledger has on disk, opened again and after a month."""

import asyncio
import time
from pathlib import Path

from fleetctl.gateway.call_ledger import FORGET_S, CallLedger, CostHold, UsageKey
from fleetctl.gateway.rules.usage import TokenCount

KEY = UsageKey("r1", "default", "small", "r1", "uid")
WORST = CostHold(TokenCount(10, 90), 1.0, 1)


def test_what_was_sent_is_charged_after_a_kill_and_what_waited_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        ledger = CallLedger(tmp_path / "ledger.db")
        for _ in range(3):
            ledger.hold(KEY, WORST)
        ledger.send(KEY, WORST)
        ledger.send(KEY, WORST)
        ledger.settle(KEY, WORST, TokenCount(1, 2), 0.25)
        await ledger.durable()
        assert (ledger.tree(KEY).calls, ledger.tree(KEY).tokens) == (3, 203)
        assert ledger.usd_of("uid") == 2.25
        again = CallLedger(tmp_path / "ledger.db")  # of the life after
        assert (again.tree(KEY).calls, again.tree(KEY).tokens) == (2, 103)
        assert again.usd_of("uid") == 1.25
        (row,) = again.since(ledger.seq)
        assert (row["usd"], row["reserved_usd"], row["estimated"]) == (1.25, 0, 1)

    asyncio.run(test())


def test_rows_are_forgotten_after_a_month_and_what_they_cost_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        ledger = CallLedger(tmp_path / "ledger.db")
        for run in ("r1", "r2", "r3"):
            key = KEY._replace(run=run, tree="r2" if run == "r3" else run)
            ledger.hold(key, WORST)
            ledger.send(key, WORST)
            ledger.settle(key, WORST, TokenCount(1, 2), 0.5)
        await ledger.durable()
        ledger.forget(time.time() + FORGET_S + 60, {"r2"})
        assert sorted(row["run"] for row in ledger.since(0)) == ["r2", "r3"]
        ledger.close()
        assert CallLedger(tmp_path / "ledger.db").usd_of("uid") == 1.5

    asyncio.run(test())
