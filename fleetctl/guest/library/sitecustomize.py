"""Makes a Python process that hangs write its stacks: fleetctl sends a signal before it ends it.

Found by its directory at the end of PYTHONPATH, and only where `progress` is set. A sitecustomize
that would be found without this one is executed, too.
"""

import contextlib
import faulthandler
import importlib.machinery
import importlib.util
import os
import sys

STACKS_SIGNAL = 46  # a real-time signal, which programs do not use

with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
    faulthandler.register(STACKS_SIGNAL, all_threads=True, chain=False)

_here = os.path.dirname(os.path.abspath(__file__))
_others = [path for path in sys.path if os.path.abspath(path) != _here]
_theirs = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _theirs is not None and _theirs.loader is not None:
    _module = importlib.util.module_from_spec(_theirs)
    sys.modules["sitecustomize"] = _module
    _theirs.loader.exec_module(_module)
