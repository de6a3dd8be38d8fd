"""The set of mutants: faults that a plausible change could bring into the product, each with the
test that must fail.

`patches` holds one file a mutant, mutant.py reads and applies it, play.py runs its test in a copy
of the tree, and `python -m tests.mutants` plays them. README.md says how to add one.
"""
