"""Makes the report of a plan: the effect of an apply, or the difference between two revisions.

build_plan.py reports the changes of an apply over a store, compare.py those of a pull request,
without a cluster and without an account. Both return one PlanReport, plain data that every screen,
comment, document and client is made from. Called by the CLI, the server and the Python client.
"""
