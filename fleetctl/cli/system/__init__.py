"""The controller process and its store, from outside: who holds it, how it ends, its copies."""
