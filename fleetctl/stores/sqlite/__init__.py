"""The embedded store: two SQLite files, state.db and events.db, with one writer.

store.py opens it. database_files.py inspects the files read-only before the first byte is written,
then raises the epoch. resources.py, runs.py and events.py have the verbs of their tables, and all
write through StoreSession (store_session.py). A transaction first compares the epoch, so that a
replaced writer may not write, and is durable when it ends. Events are buffered and follow in a
transaction of their own: a lost one undoes no outcome. open_memory_store is for tests.
"""
