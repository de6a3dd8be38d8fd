"""What calls and observers bring back to the loop. Taken in at one place, in the order in which
they came.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.model import Alive, Observation
from fleetctl.providers.contract.endpoints import ServerAddress


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
    """Certain: nothing began, and nothing will until the user changes the template; said once, it
    is asked for again, because one odd answer decides nothing.
    """

    run: str
    message: str


@dataclass(frozen=True, slots=True)
class StartWaits:
    """Certain: nothing began. Asked for again, not before retry_after_s; no attempt is consumed."""

    run: str
    reason: str
    message: str
    retry_after_s: float
    account: bool = False  # it tells of the account, whatever was asked for
    perhaps_made: bool = False  # a sandbox may be there all the same


@dataclass(frozen=True, slots=True)
class StartUnknown:
    """The call ended without an answer: asked for again under the same name."""

    run: str
    message: str


@dataclass(frozen=True, slots=True)
class StopReplied:
    """message is empty when the provider took the spec, else why it did not. Only an observation
    confirms.
    """

    run: str
    message: str


@dataclass(frozen=True, slots=True)
class AssetReplied:
    """A volume was ensured or removed, or scratch was freed; message is empty on success. address:
    where a Function's server is asked.
    """

    uid: str
    what: str  # ensured | removed | freed | swept
    message: str
    address: ServerAddress | None = None
    generation: int | None = None  # of the spec that was ensured; None: nothing was


Message = (
    Observed | StartReplied | StartRefused | StartWaits | StartUnknown | StopReplied | AssetReplied
)


def can_wait(message: Message) -> bool:
    """It only tells that something goes as it was desired: nothing can begin or end because of it,
    and if it is lost, the next look tells it again.
    """
    match message:
        case StartReplied():
            return message.begun
        case Observed(seen=Alive() as seen):
            return not seen.metrics  # by its metrics a run may be stopped early
        case _:
            return False
