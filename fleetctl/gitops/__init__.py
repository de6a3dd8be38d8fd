"""Applies the repositories of Sources, for the engine's part that decides when.

engine/kinds/source_pass.py calls GitKeeper (git_keeper.py) in three steps. `tip` finds the commit
of a ref. `read` checks it out (checkout.py), verifies its signature where the Source names keys,
and loads the manifests in a process of its own (child.py), which only reads the store. Its proposal
(proposal.py) comes back as JSON. `keep` then stores all changes of the commit, or none, within the
transaction of the caller's tick; it refuses rows that changed meanwhile, and returns losses that a
user must allow first. Slow work never runs on the controller's loop.
"""
