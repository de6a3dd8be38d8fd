"""What every controller ships into remote sandboxes, made once for all processes that are forked
from one that has imported this; see forked.py.
"""

from __future__ import annotations

from fleetctl.guest.ship.assemble import posix_source, quick_table, remote_source

remote_source()
remote_source(compiled=False)
quick_table()
posix_source()
