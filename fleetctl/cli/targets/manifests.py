"""Manifests checked in this process: for validate, for a dry run and for `delete -f`.

Loads the models, which costs a fifth of a second; apply leaves that to the controller.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from fleetctl.cli.targets.files import SweepFields, documents_of, make_sweeps, parse_assignment
from fleetctl.manifest.document.envelope import NamespaceChoice
from fleetctl.manifest.loader import Manifest, load_manifests
from fleetctl.views.kinds import Target, kind_of

# The object is named here, and an end of its search that flags gave is not.
_ANY_SWEEP = SweepFields("", {"trials": 1}, {})


def chosen_of(args: Namespace) -> NamespaceChoice:
    """Returns the namespace of documents that name no namespace."""
    return NamespaceChoice(args.namespace, binding=args.bound)


def load_files(
    args: Namespace,
    namespace: NamespaceChoice,
    *,
    tell: Callable[[str], None] | None = None,
) -> list[Manifest]:
    """Returns the manifests of -f, with the variables that --values and --set give. Raises
    ManifestErrors with every error in any file.
    """
    documents = documents_of(
        args.files,
        values=args.values,
        recursive=args.recursive,
        tell=tell,
    )
    documents = make_sweeps(documents, _ANY_SWEEP)
    return load_manifests([*documents, *map(parse_assignment, args.set)], namespace)


def named_objects(args: Namespace) -> list[Target]:
    """Returns the objects that manifests name, the last first: a used object comes after its
    users."""
    found = reversed(load_files(args, chosen_of(args)))
    return [Target(kind_of(it.kind), it.name, it.namespace) for it in found]
