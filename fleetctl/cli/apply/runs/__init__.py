"""Makes the manifest of `fleetctl run`: from a file and another command, or from flags alone.

run.py (one folder up) calls run_manifest.py, which combines the flags (work_flags.py), the header
of the program, a directory to upload and the rows of `--each`; or puts the command into the object
of a file that does work. The result is an ordinary manifest, which the loader checks and an apply
stores; errors about it name the flag instead of the field.
At the end bring_back.py copies the command's files back, never over a file that changed here.
"""
