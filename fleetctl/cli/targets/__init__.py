"""Resolves the words of a command line that name kinds, objects, tasks, volumes and manifests.

Command modules call it before they act. choose.py returns the objects that names, labels or
manifests choose; files.py returns manifests as raw text, which the controller parses, and
manifests.py loads the models where this process must check them itself. task.py returns the
provider's channel into a task's sandbox, or the files of a volume: a server's, where
common/remote.py names one. Objects are read from the store, which no function here writes; a wrong
name raises UsageError or NotFound before the command changes anything.
"""
