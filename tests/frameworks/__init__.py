"""Unmodified scripts of training frameworks, with the real packages on CPU. Run by
`make test-frameworks`; `make test` has their directories written by the standard library.
"""
