"""The supervisor: one process per (resource, template) that starts, watches and ends its runs.

Forked from a zygote (zygote.py), which is started by path under the image's Python (3.9 or later),
standard library only. It survives the controller and the zygote, and is pid 1 of its own namespaces
where the kernel lets it. Python tasks are forked from it in turn, so it stays small. From the rest
of fleetctl it imports only the parts of the guest that it shares.
"""

import os
import sys
from types import ModuleType

if "." not in __name__:
    # Run by path, under a Python that need not have fleetctl: shared modules are found beside us,
    # and no package above is executed.
    fleetctl = ModuleType("fleetctl")
    fleetctl.__path__ = [os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))]
    sys.modules["fleetctl"] = fleetctl
