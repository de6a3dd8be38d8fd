"""Files in a source that are not part of the program: those that its manifest was read from,
manifests of others, and files that fleetctl wrote there. A copy has them; the comparison of a
source does not, unless the manifest's own `exclude` takes them back in. Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fleetctl.providers.sources.excludes import Excludes

# (size, time of the last change in nanoseconds) of a file, as it was when we wrote it.
Written = tuple[int, int]
SUFFIXES = (".yaml", ".yml", ".json")
MANIFEST_BYTES_MAX = 8 << 20  # a larger file is never read as a manifest

_OURS = re.compile(
    rb"""(?:^|[{,])[ \t\r\n]*(["']?)apiVersion\1[ \t]*:[ \t]*["']?fleetctl\.dev/""", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class UnrelatedFiles:
    """names: relative paths of files that the manifest was read from. written: relative path -> how
    a file was when fleetctl wrote it. own: the patterns of `exclude`.
    """

    names: Collection[str] = ()
    written: Mapping[str, Written] = field(default_factory=dict)
    own: Excludes = field(default_factory=lambda: Excludes(()))
    manifests: bool = True  # whether manifests of others are left out of the program too

    def has(
        self,
        relative: str,
        found: os.stat_result,
        *,
        manifest: bool,
    ) -> bool:
        """Returns whether a file is apart from the program. manifest: its content is one of
        ours.
        """
        is_apart = (
            relative in self.names
            or (manifest and self.manifests)
            or self.written.get(relative) == (found.st_size, found.st_mtime_ns)
        )
        return is_apart and self.own.decide(relative, is_directory=False) is not False


NOTHING_APART = UnrelatedFiles(manifests=False)


def is_manifest(name: str, content: bytes) -> bool:
    """Returns whether a file declares an object of ours."""
    if not name.endswith(SUFFIXES) or len(content) > MANIFEST_BYTES_MAX:
        return False
    return _OURS.search(content) is not None
