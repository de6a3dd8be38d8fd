"""Provider `local`: runs as process trees of this machine, volumes as directories, no account.

`provider.py` is the face, `keepers.py` talks to the keepers, and `keeper/` is what runs beside the
controller and outlives it. Import `logs.py` alone to read output; it needs nothing else of this
package.
"""
