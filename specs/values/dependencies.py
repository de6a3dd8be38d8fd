"""The words by which one object names another that it depends on. Pure, and without a model: the
CLI's read paths come through here.
"""

from __future__ import annotations

# The fields of a dependency that name an object, each with the object's kind.
KIND_OF = {"job": "BatchJob", "sweep": "Sweep", "trainingrun": "TrainingRun"}
