"""Reads YAML strictly into plain values, and writes values that read back unchanged.

`reader.py` walks the parser's events once, without recursion and within limits, and goes on after a
duplicate key, anchor or tag, so that one reading reports all of them. Scalars follow YAML 1.2;
W&B's sweep files follow YAML 1.1 and may have aliases, which are counted (`wandb.py`).
`syntax_errors.py` puts the parser's errors into plain words. `emit.py` quotes each text that the
reader, or kubectl, would read as another value.
"""
