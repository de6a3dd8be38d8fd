"""The command line: one verb a file, loaded alone.

main.py finds the first word in VERBS (command/verbs.py) and imports that verb's module, which has
parser(verb) and run(args, screen); every error becomes a line and an exit code in main.py.
A verb reads the store in this process, and sends each change as a request to the controller, which
daemon/client/spawn.py starts where none runs; with a server, both go there.
Only output/screen.py prints. Heavy modules are imported where they are used, to start fast.
"""
