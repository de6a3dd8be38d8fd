"""Decides which earlier work counts: from the result cache, and after a changed spec.

content_keys.py computes a key over every input that could change a result; a pass records a unit
with a known key as succeeded before it starts any other. An input that is not known gives no key:
wrong reuse is worse than work done twice. When a spec is applied, row_matching.py gives each row
the index that its content had, and impact.py computes the work that the next pass would keep,
stop and start, by the reconciler's own functions. Pure.
"""
