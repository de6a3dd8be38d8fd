"""The classes of the kinds, written by `make reference` from their rows; edit those."""

from __future__ import annotations

from functools import cache

from fleetctl.client.declared_object import DeclaredObject


class BatchJob(DeclaredObject):
    """Many independent tasks from one template: of items, a matrix, files or results."""


class Sweep(DeclaredObject):
    """A search over parameters; `search` is a W&B sweep configuration."""


class TrainingRun(DeclaredObject):
    """One long job in stages, which goes on from its checkpoint."""


class Schedule(DeclaredObject):
    """Makes objects at the times of a line of cron."""


class Queue(DeclaredObject):
    """Quotas that many objects share, and their order."""


class Source(DeclaredObject):
    """A git repository whose manifests are kept applied."""


class Volume(DeclaredObject):
    """A directory that outlives sandboxes."""


class Function(DeclaredObject):
    """Containers that stay warm between the tasks that call them, or serve an Endpoint."""


class Endpoint(DeclaredObject):
    """Model servers that tasks may call, with limits, prices and keys."""


class Budget(DeclaredObject):
    """The maximal cost of all objects with certain labels in a period."""


class Notifier(DeclaredObject):
    """Receivers of notices about a namespace's objects."""


class Secret(DeclaredObject):
    """The source of values that a run gets at its start; they are never stored."""


class Policy(DeclaredObject):
    """Rules of CEL that each applied object has to keep."""


class Provider(DeclaredObject):
    """The account, limits and prices of a provider, such as `modal`."""


class Settings(DeclaredObject):
    """Limits of what is kept, and backups; one a store, `default`."""


@cache
def class_of(kind: str) -> type[DeclaredObject]:
    """Returns the class of a kind; a new one for a kind that was added since."""
    known = {it.kind: it for it in DeclaredObject.__subclasses__()}
    return known.get(kind) or type(kind, (DeclaredObject,), {})
