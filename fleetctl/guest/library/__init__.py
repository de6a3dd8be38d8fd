"""Modules that a task's program may import, shipped with its order as text.

ship/library.py selects the files that an order needs; the guest writes them into a directory of the
run, which checkpoints/begin.py puts at the end of PYTHONPATH, so that they shadow no module of the
program. fleetctl_checkpoint.py saves checkpoints; fleetctl_llm.py and its parts call the model
endpoints and run recursive queries; the guest runs fleetctl_mirror.py beside a training, and Python
finds sitecustomize.py. fleetctl/interpreter uses the budget, costs and queries on the host, so both
have one set of rules. No file imports a package of fleetctl; dspy and fsspec are imported only
where the image has them.
"""
