"""Turns reports about runs and replies of providers into records.

watcher.py has a task for each provider that observes its runs, at once after a push and else by a
slow poll, and puts the results into the inbox. The next tick gives each message to intake.py:
replies to our calls are handled there, observations by observations.py, with controllers/history
deciding how a run ended. records.py collects the changed runs, and the tick writes them, each once,
in its transaction, before any pass reads them. A look without a reply changes no record.
provider_health.py keeps in memory why a service is unreachable; passes and users see its reason.
"""
