"""Lists the data of finished work on this machine, and deletes the files that a decision names.

survey.py reads files before the store, so that files of work that begins meanwhile are not listed.
controllers/kinds/retention_decision.py decides, by the limits of `kind: Settings`, and
engine/execute/retention.py carries out the decision: rows in transactions, files in a thread by
RetentionCleaner (cleaner.py). An item in use carries the reason why it may not go. A log that
goes leaves an empty `.past` file, so that screens show that there was one (output_files.py).
A survey deletes no data, as in `fleetctl gc --dry-run`.
"""
