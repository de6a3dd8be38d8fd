"""A stand-in for Ray that keeps the rules which an attempt meets: the module that drivers import,
and, run by the file `ray` beside it, the command. Standard library alone.

The head listens on all addresses, so that a second one on its port fails; whoever joins needs its
token; a temp dir of more than 45 bytes is refused; a worker retries until its head is there and
ends with it; each node has a child in a process group of its own, as actors have.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time

TEMP_BYTES_MAX = 45
_at = None


def init(address=None, **_):
    """Raises ConnectionError when no cluster is there, or the token is another."""
    global _at
    _at = address or os.environ["RAY_ADDRESS"]
    _ask(_at, "nodes")


def nodes():
    return [{"Alive": True, "NodeManagerAddress": one} for one in _ask(_at, "nodes")]


def of_head(name):
    """An environment variable of the head, which its workers have too."""
    return _ask(_at, "variable", name=name)


def _ask(address, op, **more):
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as line:
        return _said(line, op, **more)


def _said(line, op, **more):
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    line.sendall((json.dumps({"op": op, "token": token, **more}) + "\n").encode())
    answer = json.loads(line.makefile().readline() or "{}")
    if "ok" not in answer:
        raise ConnectionError("InvalidAuthToken")
    return answer["ok"]


def _head(options):
    os.makedirs(options["temp-dir"], exist_ok=True)
    joined, token = [options["node-ip-address"]], os.environ.get("RAY_AUTH_TOKEN", "")

    def serve(line):
        with line:
            asked = json.loads(line.makefile().readline() or "{}")
            if asked.get("token") != token:
                line.sendall(b'{"error": "InvalidAuthToken"}\n')
                return
            if asked["op"] == "join":
                joined.append(asked["ip"])
                line.sendall(b'{"ok": true}\n')
                line.recv(1)
                joined.remove(asked["ip"])
                return
            ok = os.environ.get(asked["name"]) if asked["op"] == "variable" else joined
            line.sendall((json.dumps({"ok": ok}) + "\n").encode())

    if options.get("include-dashboard") == "true":
        threading.Thread(target=_dashboard, args=(options,), daemon=True).start()
    with socket.create_server(("", int(options["port"]))) as server:
        while True:
            threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


def _dashboard(options):
    with socket.create_server(("127.0.0.1", int(options["dashboard-port"]))) as server:
        while True:
            with server.accept()[0] as line:
                line.recv(65536)
                line.sendall(b"HTTP/1.0 200 OK\r\n\r\nthe dashboard of " + options["port"].encode())


def _worker(options):
    host, port = options["address"].split(":")
    while True:
        try:
            line = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    _said(line, "join", ip=options["node-ip-address"])
    line.recv(1)
    print("the head is gone", flush=True)
    sys.exit(1)


def main(argv):
    if argv[:1] != ["start"] or "--block" not in argv:
        sys.exit(f"unknown: {argv}")
    given = [it[2:].partition("=") for it in argv[1:] if it.startswith("--")]
    options = {name: value for name, _, value in given}
    if len(options["temp-dir"].encode()) > TEMP_BYTES_MAX:
        sys.exit("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes")
    if os.environ.get("STANDIN_RAY_FAILS") == options["node-ip-address"]:
        sys.exit("the raylet did not start")
    subprocess.Popen(["sleep", "6000"], process_group=0)
    (_head if "head" in options else _worker)(options)
