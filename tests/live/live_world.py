"""A store at a real provider, or at what the environment names as one: it ends what it made, so
that no more sandboxes live at once than one test makes. Shared by the suites of the clouds.
"""

from __future__ import annotations

from fleetctl.providers.contract.base import Backend, RunRef
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_suite import ProviderSuite
from tests.contracts.provider_worlds import World, command, eventually


class LiveWorld(World):
    async def left(self, backend: Backend) -> dict[str, str]:
        """Handle -> sandbox of what may live yet."""
        return {one.handle: one.sandbox for one in await backend.owned()}

    async def close(self) -> None:
        try:
            for backend in self.backends:
                for handle, sandbox in (await self.left(backend)).items():
                    await backend.stop(RunRef("", sandbox, handle, 0, ""), grace_s=0.0)
            await eventually(self._nothing_lives, "every sandbox of the test was over")
        finally:
            await super().close()

    async def _nothing_lives(self) -> bool:
        return not any([await backend.owned() for backend in self.backends])


class LiveSuite(ProviderSuite):
    def refused(self) -> Template:
        return command("true", resources={"gpu": "NoSuchGpu:1"})
