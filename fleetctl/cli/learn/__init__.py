"""Explains manifests and commands: explain, schema, init, convert, skills, completion.

The texts come from data that the program itself uses: `explain` and `schema` read the shipped
schemas and the list of reasons (controllers/reasons.py), completion the verbs and their parsers.
init, convert and skills write files or print manifests, which users apply themselves; no verb here
changes the store or starts work. complete.py runs at every press of the tab key, so it loads one
verb's parser at most, and no model.
"""
