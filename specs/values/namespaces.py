"""Namespaces, the name of an object among others for users and at providers, and the words by which
one object names another that it depends on. Pure.
"""

from __future__ import annotations

DEFAULT_NAMESPACE = "default"
# The characters that the shortest limit of a provider leaves for the names of a volume or a
# function.
ASSET_CHARS_MAX = 63

_FLAG = " -n "

# The fields of a dependency that name an object, each with the object's kind.
KIND_OF = {"job": "BatchJob", "sweep": "Sweep", "trainingrun": "TrainingRun"}


def object_key(
    kind: str,
    name: str,
    namespace: str = DEFAULT_NAMESPACE,
) -> str:
    """Returns `batchjob/x`, or `batchjob/x -n team`: as a user writes it behind a verb."""
    flag = "" if namespace == DEFAULT_NAMESPACE else f"{_FLAG}{namespace}"
    return f"{kind.lower()}/{name}{flag}"


def split_key(key: str) -> tuple[str, str, str]:
    """Splits a key of object_key into the word for the kind, the name and the namespace."""
    named, _, namespace = key.partition(_FLAG)
    word, _, name = named.partition("/")
    return word, name, namespace or DEFAULT_NAMESPACE


def asset_name(name: str, namespace: str) -> str:
    """Returns the name of a volume or a function at its provider. No name has a dot in it, so that
    no two objects share one.
    """
    if namespace == DEFAULT_NAMESPACE:
        return name
    return f"{namespace}.{name}"


def own_name(asset: str) -> str:
    """The object's name again, as its manifest has it."""
    return asset.rpartition(".")[2]
