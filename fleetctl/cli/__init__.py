"""The command line: one verb a file, loaded alone. `main` finds the verb."""
