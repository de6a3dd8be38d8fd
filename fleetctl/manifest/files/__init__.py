"""Reads manifests from paths and addresses, and makes the files that they name part of the spec.

`read_documents` of `documents.py` turns the command line into texts, within limits. Later
`include_files` of `includes.py` replaces names of files by contents or digests before the spec is
checked, so that later changes of the files do not matter; `source.path`, and files that are read
when a run starts, stay paths. `fence.py` opens each file: regular ones only, and none outside the
checkout of a Source. Servers read in the threads of `patience.py`, since a network disk may never
reply.
"""
