"""Manifests checked in this process: for validate, for a dry run and for `delete -f`.

Loads the models, which costs a fifth of a second; apply leaves that to the controller.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

from fleetctl.cli.targets.files import documents_of
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.manifest.loader import Manifest, load
from fleetctl.views.kinds import Target, kind_of


def chosen_of(args: Namespace) -> Chosen:
    """Where documents go that name no namespace."""
    return Chosen(args.namespace, binding=args.bound)


def load_files(
    names: Sequence[str],
    namespace: Chosen,
    *,
    recursive: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[Manifest]:
    """Raises ManifestErrors with everything that is wrong in any file."""
    return load(documents_of(names, recursive=recursive, tell=tell), namespace)


def named_objects(
    names: Sequence[str], namespace: Chosen, *, recursive: bool = False
) -> list[Target]:
    """The objects that manifests name, the last first: what others use goes after its users."""
    found = reversed(load_files(names, namespace, recursive=recursive))
    return [Target(kind_of(it.kind), it.name, it.namespace) for it in found]
