"""Makes the lists of `get`: objects, tasks, notices, interpreters, namespaces, and following them.

get.py parses the command line, opens the store and calls in here. objects.py selects the objects by
name, label and field, and makes the table with the columns of their kind; tasks.py lists the runs
below one object; store_lists.py lists records that are no objects. watch.py waits for a change of
the store, reads it again, and redraws the table on a terminal or prints a line a change anywhere
else. Only the size of a volume is requested from its provider; the rest is read from the store.
"""
