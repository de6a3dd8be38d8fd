"""`python -I -X utf8 <this directory> <keeper directory>`: starts a keeper. See starting.py."""

import importlib
import os
import sys

if __name__ == "__main__":
    # Found by its own directory and not as a part of fleetctl, which may not be installed for this
    # Python.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    starting = importlib.import_module(os.path.basename(here) + ".starting")
    del sys.path[0]
    starting.main(sys.argv[1])
