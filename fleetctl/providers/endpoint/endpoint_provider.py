"""Provider `endpoint`: a run is a call of a model, and its start is the call. A forgotten call
holds no resource, so there are no orphans.

Built by wiring; called by the engine. A start ends when its outcome has been observed. So a run
is `Starting` during its call: after a crash of the controller it is started again under its name,
and the gateway, which lives on, returns the answer that it has kept under (run, number).
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.common.finding import Finding
from fleetctl.controllers.model import Ended, Gone, Observation
from fleetctl.providers.contract.account import Account
from fleetctl.providers.contract.base import (
    Backend,
    EndpointAccess,
    FunctionAsset,
    LogChunk,
    Notify,
    Owned,
    RunRef,
    RunRequest,
)
from fleetctl.providers.contract.orphans import GONE_HINT, Orphan, Orphans
from fleetctl.providers.contract.terms import Contract
from fleetctl.providers.endpoint.gateway_connection import (
    GatewayConnection,
    GatewayReply,
    ModelFailure,
    find_obstacles,
)
from fleetctl.providers.endpoint.prompt_row import NUMBERS, RowOutcome, ask_row
from fleetctl.providers.paths import jobs_dir, make_private, runs_dir
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from fleetctl.specs.blocks.template import Template

NAME = "endpoint"
_WHY_NOT = f"provider `{NAME}` asks prompts, and has no"

CONTRACT = Contract(
    visibility_bound_s=0.0,
    list_shows_finished=False,
    strong_get=True,
    max_lifetime_s=None,
    billing_quantum_s=0.0,
    calls_per_s=5000.0,
    # A start lasts as long as its answer takes, and waits in the gateway; in a batch, for a day.
    calls_at_once=65_536,
    call_deadline_s=4 * 86400.0,
    # Four rows for each slot of an endpoint of 64: rows that wait in the gateway keep its slots
    # full while the outcomes of others are written down.
    default_parallelism=256,
    poll_s=30.0,
    sandboxes_at_once=65_536,
)


class EndpointProvider:
    contract = CONTRACT

    def __init__(
        self,
        home: Path,
        *,
        store_id: str,
        notify: Notify,
    ) -> None:
        del store_id  # only the gateway's answers outlive the controller
        self._home = home
        self._notify = notify
        self._line = GatewayConnection()
        self._asking: set[str] = set()
        self._ended: dict[str, Ended] = {}  # not observed yet
        self._observed: dict[str, asyncio.Event] = {}
        # From starts that were given up before an answer: a stop or another start follows.
        self._given_up: dict[str, EndpointAccess] = {}

    async def start(self, request: RunRequest) -> str:
        run = request.run
        self._asking.add(run)
        self._given_up.pop(run, None)
        observed = self._observed[run] = asyncio.Event()
        try:
            if run not in self._ended:
                self._ended[run] = await self._outcome(request)
            self._notify(run)
            # The engine learns the end before it learns that the start went well. Else a crash
            # between the two would leave a run that began and is nowhere, and its unit would be
            # asked, and paid, under another name.
            await observed.wait()
            del self._ended[run]
        except asyncio.CancelledError:
            if request.endpoints is not None and run not in self._ended:
                self._given_up[run] = request.endpoints
            raise
        finally:
            self._asking.discard(run)
            if self._observed.get(run) is observed:
                del self._observed[run]
        return NAME

    async def observe(self, runs: Sequence[RunRef]) -> Sequence[Observation]:
        return [one for one in map(self._observe_call, runs) if one is not None]

    async def stop(self, ref: RunRef, *, grace_s: float) -> None:
        """Stops the call. The engine has given its start up by now: the gateway sends no further
        request.
        """
        access = self._given_up.pop(ref.run, None)
        if access is not None:
            for number in NUMBERS:
                await self._line.drop(access, number)

    async def owned(self) -> Sequence[Owned]:
        return ()

    async def logs(
        self,
        ref: RunRef,
        *,
        offset: int = 0,
        follow: bool = False,
    ) -> AsyncIterator[LogChunk]:
        reader = RunLogReader(runs_dir(self._home, NAME, ref.uid), ref.run)

        async def ended() -> bool:
            return ref.run not in self._asking

        async for data, at, eof in reader.tail(offset, ended, follow=follow):
            yield LogChunk(data, at, eof=eof)

    async def ensure_volume(self, name: str) -> None:
        raise Refused(f"{_WHY_NOT} volumes: `{name}`", hint="place it at another provider")

    async def remove_volume(self, name: str) -> None:
        """Does no work: no volume was ever made."""

    async def ensure_function(self, asset: FunctionAsset) -> None:
        message = f"{_WHY_NOT} functions: `{asset.order.name}`"
        raise Refused(message, hint="place it at another provider")

    async def remove_function(self, name: str) -> None:
        """Does no work: no function was ever made."""

    async def remove_scratch(self, uid: str, *, keep_logs: bool) -> None:
        if not keep_logs:
            doomed = jobs_dir(self._home, NAME) / uid
            await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)

    def revision(self, uid: str, template: Template, template_hash: str) -> str:
        return ""

    def usd_per_s(self, template: Template) -> float | None:
        return 0.0  # there is no sandbox; the gateway counts the cost of the calls

    def lacks(self, template: Template) -> str:
        if template.prompt is not None:
            return ""
        return f"{_WHY_NOT} sandboxes for programs"

    async def foresee(self, template: Template, account: Account) -> AsyncIterator[Finding]:
        del account  # the endpoint's own key is used
        for it in find_obstacles(template):
            yield it

    async def close(self) -> None:
        await self._line.close()

    def _observe_call(self, ref: RunRef) -> Observation | None:
        end = self._ended.get(ref.run)
        if end is not None:
            if ref.run in self._observed:
                self._observed[ref.run].set()
            else:
                del self._ended[ref.run]  # its start has no waiting caller any more
            return end
        if ref.run in self._asking:
            return None
        return Gone(ref.run, time.time())

    async def _outcome(self, request: RunRequest) -> Ended:
        """Returns the end of the call. Raises Refused and Unavailable: no model was asked then."""
        begun_at_s = time.time()
        try:
            async with asyncio.timeout(request.template.timeout_seconds):
                outcome = await self._ask_model(request)
        except TimeoutError:
            limit = f"{request.template.timeout_seconds:g} s"
            outcome = RowOutcome(
                failure=ModelFailure("Timeout", f"there was no answer within {limit}")
            )
        if outcome.log:
            await asyncio.to_thread(self._keep, request, outcome.log)
        failure = outcome.failure
        return Ended(
            run=request.run,
            handle=NAME,
            started_at_s=begun_at_s,
            ended_at_s=time.time(),
            ok=failure is None,
            infrastructure=failure is not None and failure.infrastructure,
            reason="Completed" if failure is None else failure.reason,
            message="" if failure is None else failure.message,
            exit_code=None,
            journal_offset=0,
            result=outcome.result,
        )

    async def _ask_model(self, request: RunRequest) -> RowOutcome:
        prompt = request.template.prompt
        access = request.endpoints
        if prompt is None:
            message = f"{_WHY_NOT} sandboxes for programs"
            raise Refused(message, hint="give `prompt`, or place it at another provider")
        if access is None:
            message = f"no access to endpoint `{prompt.endpoint}` came with this run"
            raise Refused(message, hint="apply it with a controller of this version")
        model = prompt.model or next(iter(access.models), "")

        async def post(number: int, body: Mapping[str, Any]) -> GatewayReply:
            batched = prompt.mode == "batch"
            return await self._line.post(
                access,
                prompt.endpoint,
                number,
                body,
                batched=batched,
            )

        return await ask_row(prompt, model, request.params, post)

    def _keep(self, request: RunRequest, log: str) -> None:
        """Answers that were not taken: of a row that failed alone, and where its log would be."""
        directory = make_private(runs_dir(self._home, NAME, request.uid))
        (directory / f"{request.run}.log").write_text(log)


_: type[Backend] = EndpointProvider


class NoOrphans:
    def __init__(self, home: Path, account: Account) -> None:
        del home, account

    async def find_all(self) -> Sequence[Orphan]:
        return ()

    async def remove(self, orphan: Orphan) -> None:
        """Does no work: there are no orphans."""

    async def claim(
        self,
        orphan: Orphan,
        store_id: str,
        uid: str,
    ) -> None:
        del store_id, uid
        raise Refused(f"`{orphan.run}` is a call, which cannot be adopted", hint=GONE_HINT)

    async def close(self) -> None:
        """Does no work: no connection is open."""


__: type[Orphans] = NoOrphans
