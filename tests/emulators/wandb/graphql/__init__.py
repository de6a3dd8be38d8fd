"""GraphQL as far as W&B's clients speak it: documents, their execution, and what may be asked."""
