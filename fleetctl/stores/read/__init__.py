"""Reads the store without being its writer, and without a controller.

connecting.py opens connections that cannot write, and refuses a store that is lost or that this
version cannot read. reader.py and rows.py serve read verbs and import only the standard library,
since such a process has some tens of milliseconds. read_only.py serves `plan` and `diff` by the
writer's own classes, in one transaction, so that all reads see one moment. query.py runs a user's
SQL over the views of sql/views.sql, within bounds. Where no store exists yet, all are empty.
"""
