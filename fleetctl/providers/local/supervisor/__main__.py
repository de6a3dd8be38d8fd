"""`python -I -X utf8 <this directory> <file of the guest>`: a zygote. See zygote.py."""

import importlib
import os
import sys

if __name__ == "__main__":
    # Found by its own directory and not as a part of fleetctl, which may not be installed for this
    # Python.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    zygote = importlib.import_module(os.path.basename(here) + ".zygote")
    del sys.path[0]
    zygote.main(sys.argv[1])
