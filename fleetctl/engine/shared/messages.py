"""Defines the messages that calls and observers bring back to the loop, and the inbox that collects
them and wakes it.

Taken in by one module, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetctl.controllers.model import Alive, Observation
from fleetctl.providers.contract.base import ServerAddress
from fleetctl.specs.values.hints import HintedText


@dataclass(frozen=True, slots=True)
class Observed:
    provider: str
    asked_at_s: float
    seen: Observation

    @property
    def run(self) -> str:
        return self.seen.run


@dataclass(frozen=True, slots=True)
class StartReplied:
    run: str
    handle: str
    begun: bool = True  # False: the sandbox is there, and begins once its handle is durable


@dataclass(frozen=True, slots=True)
class StartRefused:
    """Certain: no run began, and none will until the user changes the template; after the first
    refusal the call is repeated, because a single odd reply proves little.
    """

    run: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class StartWaits:
    """Certain: no run began. Requested again, not before retry_after_s; no attempt is consumed."""

    run: str
    reason: str
    message: str
    retry_after_s: float
    account: bool = False  # it concerns the account, for any request
    perhaps_made: bool = False  # a sandbox may be there all the same
    hint: str = ""


@dataclass(frozen=True, slots=True)
class StartUnknown:
    """The call ended without a reply: repeated under the same name."""

    run: str
    message: str


@dataclass(frozen=True, slots=True)
class StopReplied:
    """message is empty when the provider took the spec, else why it did not. Only an observation
    confirms.
    """

    run: str
    message: HintedText


@dataclass(frozen=True, slots=True)
class AssetReplied:
    """A volume was ensured or removed, or scratch was freed; message is empty on success. address:
    the URL of a Function's server.
    """

    uid: str
    what: str  # ensured | removed | freed | swept
    message: HintedText
    address: ServerAddress | None = None
    generation: int | None = None  # of the ensured spec; None: no spec was ensured


Message = (
    Observed | StartReplied | StartRefused | StartWaits | StartUnknown | StopReplied | AssetReplied
)


def can_wait(message: Message) -> bool:
    """Returns true if it only reports that a run goes on as desired: no run can begin or end by it,
    and if it is lost, the next look reports it again.
    """
    match message:
        case StartReplied():
            return message.begun
        case Observed(seen=Alive() as seen):
            return not seen.metrics  # by its metrics a run may be stopped early
        case _:
            return False


class Inbox:
    """gather_s: how long a message that can wait does so, while `crowded` is set."""

    def __init__(self, *, gather_s: float) -> None:
        self.facts: list[Message] = []  # not taken in yet
        self.at_capacity = False  # many runs are live, so one tick should cover several messages
        self._gather_s = gather_s
        self._woken = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def tell(self, message: Message) -> None:
        """Takes a message of an effect or an observer."""
        self.facts.append(message)
        if not (self.at_capacity and can_wait(message)):
            self.wake()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._gather_s, self.wake)

    def wake(self) -> None:
        """Wakes the loop."""
        self._woken.set()

    async def wait(self, until_s: float) -> None:
        """Waits until the loop is woken, or until_s seconds have passed."""
        alarm = asyncio.get_running_loop().call_later(until_s, self.wake)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()

    def rest(self) -> None:
        """Clears the wake, as the loop is about to look at all."""
        self._woken.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
