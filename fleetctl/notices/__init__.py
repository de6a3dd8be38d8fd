"""Sends a notice to its sink once: HTTP request, mail, program or commit status.

`engine/kinds/notices.py` decides when and how often; it calls `send_notice` in `send.py` for a row
of its outbox and records the result. Each delivery runs in a thread of its own and is cut off at a
deadline, so that a sink that hangs delays only itself. Users see the `SinkOutcome`, so it never
holds a secret address. A controller in a cluster starts no program. Imports neither engine nor
store.
"""
