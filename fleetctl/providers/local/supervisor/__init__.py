"""The supervisor: one process per (resource, template) that starts, watches and ends its runs.

Forked from a zygote (zygote.py), which is started by path under the image's Python (3.9 or later),
standard library only. It survives the controller and the zygote, and is pid 1 of its own namespaces
where the kernel lets it. Python tasks are forked from it in turn, so it stays small. Of the rest of
fleetctl it imports the parts of the guest that it shares, and nothing else.
"""

import os
import sys
from types import ModuleType

if "." not in __name__:
    # Run by path, under a Python that need not have fleetctl: what is shared is found beside us,
    # and nothing of the package above it is executed.
    fleetctl = ModuleType("fleetctl")
    fleetctl.__path__ = [os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))]
    sys.modules["fleetctl"] = fleetctl
