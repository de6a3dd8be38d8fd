"""Runs one pass over one object inside a tick's transaction: load, decide, check, write.

passes.py calls the others in this order: work_loader.py reads the object's row and history,
dependencies.py reports the objects it waits for, controllers/reconcile.py makes the plan, lint_plan
checks it, intents.py writes the rows of each action, and the new status is written last. No
provider is called: an intent is durable before execute/ acts on it. A pass that raises stops only
its object, which is tried again later and shows the error in its status. suggestions.py computes
the next point of a search outside the loop; a later pass uses it.
"""
