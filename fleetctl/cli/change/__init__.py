"""Changes stored objects without their files: delete, retry, suspend, set, edit, label and more.

A verb sends requests, and the controller checks and stores the change: no verb here writes to the
store itself. Where work or data would be lost, the user must agree first (cli/apply/request.py);
without a terminal the verb refuses and names the flag. set, scale, edit, label and annotate share
store_change in set.py. delete then waits until every part is confirmed gone.
orphans.py lists and ends sandboxes at the providers directly, and sends adoptions as requests.
"""
