"""The number of this version, for all floors; package metadata is slow to read."""

VERSION_HEADER = "x-fleetctl-version"  # of both sides of a server
VERSION = "0.1.0"  # pyproject.toml has it too; a test holds them equal

MINORS_APART_MAX = 1  # of a command line and its server, in either direction


def versions_fit(one: str, other: str) -> bool:
    """Returns whether two versions work with each other; True where either is none of ours."""
    parts = [it.split(".")[:2] for it in (one, other)]
    if not all(len(it) == 2 and it[0].isdigit() and it[1].isdigit() for it in parts):
        return True
    (major, minor), (their_major, their_minor) = parts
    return major == their_major and abs(int(minor) - int(their_minor)) <= MINORS_APART_MAX
