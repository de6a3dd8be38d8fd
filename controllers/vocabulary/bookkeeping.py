"""Names the annotations of ours whose content is for the engine alone, long JSON: documents leave
them out, and `status` has the part that users need.
"""

from __future__ import annotations

# The trials that `priorTrials` took, when their sweep had finished.
PRIOR = "fleetctl.dev/prior-trials"
# The sweep at W&B of a `backend: wandb`, and the runs that it has assigned; see
# engine/kinds/wandb/sweep_link.py.
WANDB = "fleetctl.dev/wandb"

# Records which work met its dependencies when its first run began, and by which event.
RELEASED = "fleetctl.dev/released"
# The results that `tasks.fromResults` took.
RESULTS = "fleetctl.dev/results"

# The indexes of the rows of a BatchJob; see controllers/reuse/row_matching.py.
INDEXES = "fleetctl.dev/task-indexes"

BOOKKEEPING = frozenset({INDEXES, PRIOR, RELEASED, RESULTS, WANDB})
