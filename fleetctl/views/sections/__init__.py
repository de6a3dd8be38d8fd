"""Formats the texts of single kinds: cells of their lists, and their lines in `describe`.

A row of specs/kinds/registry.py names each function as `module:function`. views/columns.py imports
the module of a cell when it makes the column, and details.py those of the lines and tables.
A cell gets the View of an object and the time now, and returns text from the stored spec and
status. Lines may need more: queues.py computes positions from the statuses of all waiting objects.
A kind gets a column by a function here and its name in the kind's row.
"""
