"""Deterministic simulation of the real engine and the real store on virtual time.

One seed decides everything: the manifests, the specs that change them, the provider models, every
fault and the points at which the controller dies. `runner.simulate(seed)` plays it and checks the
invariants after every provider effect and every commit; a failure replays with `python -m
tests.simulation 1 --first SEED`.

    loop.py          virtual time, and an asyncio event loop that runs on it
    models.py        what the simulated providers promise (Contract), and how they misbehave
    world.py         the ground truth: sandboxes and the work in them; survives every crash
    observing.py     what a provider answers when asked for a run by id
    provider.py      the Backend that the engine sees; lives and dies with one incarnation
    politeness.py    whether a provider is called as its contract allows
    faults.py        where an incarnation dies
    objects.py       generated specs, each with the end that must come of it
    scenario.py      what a scenario is
    scenarios.py     generated sequences of wishes
    places.py        the same over several providers: quotas, limits, prices, spill-over
    money.py         the same under budgets
    races.py         the same while rows change under somebody's hands
    snapshot.py      the committed state of the store, read back after each commit
    scene.py         all that a check may look at
    *_checks.py      what must hold at every instant; invariants.py lists them
    liveness.py      what must be reached in the end, and stay so
    acts.py          what the person does in a play, and what is demanded of its end
    runner.py        plays one seed
    hygiene.py       seeded ids, and ears for the engine's log
    planted/         bugs that the simulation must catch

What breaks operators in the field is part of every seed. Intermediate states: the controller dies
at any await, effect or commit. Stale states: look-ups and lists are as old as the contract allows.
Unobserved states: pushes, answers and words about specs are lost. Desired states go A, B, A.
"""
