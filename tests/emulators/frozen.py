"""Imported last by the process that emulators are forked from: what is there by then stays, so that
a search for garbage in a fork looks at none of it and copies no page of it.
"""

import gc

gc.collect()
gc.freeze()
