"""A stand-in for a distributed trainer, of the standard library alone: ranks meet at
MASTER_ADDR:MASTER_PORT, go through each step together, print a line and report a metric for it;
rank 0 saves every SAVE steps.

CRASH=attempt:rank:step:signal ends one rank by a signal; HANG=rank lets one rank sleep after its
last step; CODE=rank:code ends one with a code. A rank whose peers are gone exits with 1.
"""

import json
import os
import signal
import socket
import sys
import time

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ATTEMPT = int(os.environ["FLEETCTL_ATTEMPT"])
STEPS, SAVE = int(os.environ.get("STEPS", "20")), int(os.environ.get("SAVE", "5"))
CHECKPOINT = os.environ.get("CHECKPOINT", "")


def term(*_):
    print(f"rank {RANK} got TERM", flush=True)
    sys.exit(0 if os.environ.get("CLEAN") else 3)


signal.signal(signal.SIGTERM, term)


def met():
    """Connections to the others: of rank 0 to all, of the others to rank 0."""
    if WORLD == 1:
        return []
    at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        wide = ":" in at[0]  # an address of IPv6, which may stand for one of IPv4
        family = socket.AF_INET6 if wide else socket.AF_INET
        with socket.create_server(at, family=family, dualstack_ipv6=wide) as server:
            return [server.accept()[0] for _ in range(WORLD - 1)]
    while True:
        try:
            return [socket.create_connection(at)]
        except ConnectionRefusedError:
            time.sleep(0.01)


def together(peers):
    """Returns when every rank is here; ends this one when a peer is gone."""
    for peer in peers:
        peer.sendall(b"x")
    for peer in peers:
        if not peer.recv(1):
            print(f"rank {RANK}: a peer is gone", flush=True)
            sys.exit(1)


def main():
    resumed = 0
    if CHECKPOINT and os.path.exists(CHECKPOINT):
        with open(CHECKPOINT) as file:
            resumed = json.load(file)["step"]
    peers = met()
    crash = os.environ.get("CRASH", "").split(":")
    for step in range(resumed + 1, STEPS + 1):
        together(peers)
        if crash[:3] == [str(ATTEMPT), str(RANK), str(step)]:
            os.kill(os.getpid(), int(crash[3]))
        print(f"rank {RANK} step {step}", flush=True)
        with open(os.environ["FLEETCTL_METRICS"], "a") as file:
            file.write(json.dumps({"step": step, "loss": 1 / step}) + "\n")
        if RANK == 0 and CHECKPOINT and step % SAVE == 0:
            with open(CHECKPOINT + ".new", "w") as file:
                json.dump({"step": step}, file)
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
    if RANK == 0:
        with open(os.environ["FLEETCTL_RESULT"], "w") as file:
            json.dump({"resumed_from": resumed, "world": WORLD}, file)
    if os.environ.get("HANG") == str(RANK):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    rank, _, code = os.environ.get("CODE", "").partition(":")
    if rank == str(RANK):
        sys.exit(int(code))


main()
