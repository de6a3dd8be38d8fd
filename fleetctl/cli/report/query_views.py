"""Options and hints of the verbs that ask the store as SQL views: cost and top."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.stores.read.query import SqlQuery


def choose_namespace(args: Namespace) -> str | None:
    """Returns the namespace of the query; None for all."""
    if args.everywhere:
        return None
    return str(args.namespace)


def count_other_namespaces(asking: SqlQuery, namespace: str | None) -> int:
    """Returns how many other namespaces have had runs, which a list for one does not show."""
    if namespace is None:
        return 0
    sql = "SELECT count(DISTINCT namespace) FROM attempts WHERE namespace <> ?1"
    return int(next(asking.ask(sql, (namespace,)).rows)[0])
