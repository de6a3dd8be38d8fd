"""Turns a manifest into a committed change: draft, compare, predict, ask for consent, store.

propose.py computes the changes and only reads: draft.py makes each row, impact.py finds the effect
on its work, deletion.py the objects to prune, policies/ the verdicts. predictions/ finds work that
would fail or wait. consent.py refuses a change that loses work or data until the user agrees.
write/ stores all changes in one transaction, or none. The controller takes these steps in
daemon/receive.py; `plan`, `diff` and dry runs take the first ones in local_proposal.py and store
no change. Runs are started and stopped by the engine's next pass, never here.
"""
