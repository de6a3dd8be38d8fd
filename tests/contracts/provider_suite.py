"""The suite of our own providers: the contract that fleetctl.testing holds other projects' to, and
all that the shared guest brings. A provider's test module subclasses ProviderSuite and says how to
build a world.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.testing.provider_contract import ProviderContract
from tests.contracts.provider_checkpoints import ProviderCheckpoints
from tests.contracts.provider_fields import ProviderFields
from tests.contracts.provider_inputs import ProviderInputs
from tests.contracts.provider_kept_files import ProviderKeptFiles
from tests.contracts.provider_metrics import ProviderMetrics
from tests.contracts.provider_outputs import ProviderOutputs
from tests.contracts.provider_services import ProviderServices
from tests.contracts.provider_sharing import ProviderSharing
from tests.contracts.provider_sources import ProviderSources
from tests.contracts.provider_volume_tasks import ProviderVolumeTasks
from tests.contracts.provider_wandb import ProviderWandb
from tests.contracts.provider_worlds import World


class ProviderSuite(
    ProviderOutputs,
    ProviderSharing,
    ProviderMetrics,
    ProviderWandb,
    ProviderCheckpoints,
    ProviderServices,
    ProviderKeptFiles,
    ProviderVolumeTasks,
    ProviderSources,
    ProviderInputs,
    ProviderFields,
    ProviderContract,
):
    """`world` builds the provider; nothing else is asked of a subclass.

    whole: `make test` runs all tests of the suite, and not only those of the seam (conftest.py).
    second: it is a further backend of a provider that another class tries.
    """

    whole, second = True, False

    def world(self, tmp_path: Path) -> World:
        raise NotImplementedError
