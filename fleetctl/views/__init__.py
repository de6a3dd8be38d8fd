"""The read model: objects, tasks and goals as every screen shows them. Needs no controller.

store_reading.py reads rows of the store and builds a View of each object (objects.py) and its
tasks (tasks.py); spending.py and overview.py sum up by SQL. columns.py makes the columns that the
registry in specs/kinds names, sections/ has the texts of single kinds, plotting/ the charts.
The CLI, the server and the operator all show these views, so that a status reads the same.
Columns may grow; scripts read `-o json` (documents.py).
No file here writes to the store or calls a provider.
"""
