"""Guesses the field or value that a user meant by a wrong one. Changes no manifest: all is advice.

`findings.py` turns each error of a model into a finding and takes its hint from here: from
`synonyms.py` for a field that is misspelled or has its name in another tool, and from
`value_hints.py` for a value of the wrong form. A hint needs one likely meaning; a text with two
meanings is a finding that names both. `fields.py` reads the generated JSON Schema, not the models,
for `fleetctl explain`.
"""
