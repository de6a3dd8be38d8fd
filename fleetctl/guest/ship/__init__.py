"""Makes the files that a provider puts into a sandbox: the guest and the driver.

`assemble.py` packs the modules of the guest into one Python program behind `onefile.py`, which
imports a module from the program's tables when a verb first needs it; the driver and the `sh` guest
are joined texts. The same sources give the same text, so that its hash can name an image or a
ConfigMap. `library.py` selects the files that travel with each order. Only `onefile.py`, `quick.py`
and `recompile.py` run in the sandbox or its image; the rest runs on the controller's machine.
"""
