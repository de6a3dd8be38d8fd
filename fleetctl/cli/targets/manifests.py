"""Manifests checked in this process: for validate, for a dry run and for `delete -f`.

Loads the models, which costs a fifth of a second; apply leaves that to the controller.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from fleetctl.cli.targets.files import assignment, documents_of
from fleetctl.manifest.document.namespaces import Chosen
from fleetctl.manifest.loader import Manifest, load
from fleetctl.views.kinds import Target, kind_of


def chosen_of(args: Namespace) -> Chosen:
    """Where documents go that name no namespace."""
    return Chosen(args.namespace, binding=args.bound)


def load_files(
    args: Namespace, namespace: Chosen, *, tell: Callable[[str], None] | None = None
) -> list[Manifest]:
    """Of -f, with the variables that --values and --set give. Raises ManifestErrors with everything
    that is wrong in any file.
    """
    documents = documents_of(args.files, values=args.values, recursive=args.recursive, tell=tell)
    return load([*documents, *map(assignment, args.set)], namespace)


def named_objects(args: Namespace) -> list[Target]:
    """The objects that manifests name, the last first: what others use goes after its users."""
    found = reversed(load_files(args, chosen_of(args)))
    return [Target(kind_of(it.kind), it.name, it.namespace) for it in found]
