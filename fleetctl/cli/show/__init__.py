"""Shows stored objects: get, describe, summary, events.

Each verb opens the store in this process (views/store_reading.py) and prints its statuses and rows.
No controller is needed; get and describe warn where work waits and none runs.
get.py chooses the list by its first word: objects, tasks and more are in lists/. describe.py prints
the state, the reason and a fix, then the fields in the order of the kind's row: work_lines.py for
work, views/details.py for the rest. Text from users is escaped where a line is made.
"""
