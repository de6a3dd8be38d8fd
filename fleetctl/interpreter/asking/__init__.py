"""Serves the requests of an interpreter's code to the host: language models and recursive queries.

The code calls `llm_query` (`questions.py`) or `rlm_query` (`recursion.py`) as tools. A question
first reserves its worst case in the interpreter's budget, all questions of a batch or none; then it
is sent once, never again, and the usage that the model reports is charged. `model_server.py` makes
the calls and knows their cost. A recursive query has an interpreter of its own below this one, in
which `rlm.py` runs dspy's loop; at the greatest depth the model replies itself.
"""
