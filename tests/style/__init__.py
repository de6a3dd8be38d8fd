"""Measures how well a stranger can read the product: its names, its prose and its files.

`measures.py` counts, `test_style.py` holds each count below its ceiling. A ceiling is lowered with
the work that earns it, and never raised. `python -m tests.style [NAME]` prints the counts, and
where a measure finds something.
"""
