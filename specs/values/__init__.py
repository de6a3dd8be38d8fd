"""Reads and checks the strict scalars and quantities that specs are made of. Pure.

scalars.py has Spec, the base of all models (immutable, no unknown field, camelCase outside), and
the scalar types: a text "3" is not the number 3. quantities.py, cron.py, packages.py and their
neighbours each read one form of text; a wrong value raises ValueError with a sentence on the right
form. quantities.py, hashing.py and namespaces.py load no pydantic: read verbs may import them.
Hashes are in stored rows: a change of their form would make all work look changed.
"""
