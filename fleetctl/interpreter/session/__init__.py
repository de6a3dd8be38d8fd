"""Holds the session of an interpreter with one sandbox at a time, from its start to its end.

`InterpreterRuntime` in `runtime.py` decides: the first call opens a sandbox, executions follow one
another, and code is sent once and never again. After a lost sandbox the next call raises, since its
state is gone; the one after that opens a new sandbox. `conversation.py` exchanges lines with the
driver and runs the tools that the code calls. `interpreter_record.py` records a sandbox before the
provider is called, so that the next program can end the sandboxes of a killed one.
"""
