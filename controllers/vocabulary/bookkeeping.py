"""Annotations of ours whose content is for the engine alone, long JSON: documents leave them out,
and `status` has what people need of them.
"""

from __future__ import annotations

# The trials that `priorTrials` took, when their sweep was over.
PRIOR = "fleetctl.dev/prior-trials"
# The sweep at W&B that a `backend: wandb` stands for, and what it has handed out; see
# engine/kinds/wandb/ties.py.
WANDB = "fleetctl.dev/wandb"

# Of which work its dependencies were met when the first of it began, and by what.
RELEASED = "fleetctl.dev/released"
# The results that `tasks.fromResults` took.
RESULTS = "fleetctl.dev/results"

# The indexes of the rows of a BatchJob; see controllers/reuse/rows.py.
INDEXES = "fleetctl.dev/task-indexes"

BOOKKEEPING = frozenset({INDEXES, PRIOR, RELEASED, RESULTS, WANDB})
