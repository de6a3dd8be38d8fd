"""Imported by the process that commands are forked from: all modules that verbs, plans and screens
are made of, which each command would else import anew.
"""

import importlib
import pkgutil

PACKAGES = ("fleetctl.cli", "fleetctl.apply", "fleetctl.views", "fleetctl.providers")


def import_all(package: str) -> None:
    path = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(path, f"{package}."):
        # What is shipped to a machine of a provider is a program of its own.
        if not found.name.endswith("__main__") and ".shipped." not in found.name:
            importlib.import_module(found.name)


for name in PACKAGES:
    import_all(name)
