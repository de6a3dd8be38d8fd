"""Deterministic simulation of the real engine and the real store on virtual time.

One seed decides everything: the manifests, the wishes that change them, the provider models, every
fault and the points at which the controller dies. `runner.simulate(seed)` plays it and checks the
invariants after every provider effect and every commit; a failure replays with `python -m
tests.simulation 1 --first SEED`.

    loop.py        virtual time, and an asyncio event loop that runs on it
    models.py      what the simulated providers promise (Contract) and how they misbehave within it
    world.py       the ground truth: sandboxes and the work in them; survives every crash of the
    controller
    provider.py    the Backend that the engine sees; lives and dies with one incarnation of the
    controller
    faults.py      where an incarnation dies, when providers are down, and when the faults stop
    scenarios.py   generated manifests and sequences of wishes
    snapshot.py    the committed state of the store, read back after each commit
    invariants.py  what must hold at every instant
    liveness.py    what must be reached in the end, and stay so
    runner.py      plays one seed
    planted/       bugs that the simulation must catch
"""
