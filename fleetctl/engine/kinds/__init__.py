"""Carries out the kinds with behavior of their own, each as an EnginePart of the engine.

The row of a kind in specs/kinds/registry.py names its part; engine.py builds it, and ticks and
passes call its hooks without the name of a kind. A part collects the facts, a pure function of
controllers/ decides, and the status is durable together with the objects that the part makes, in
the tick's transaction. Slow work (a repository, a backup, a sink, W&B, the gateway) runs beside the
ticks in services that the daemon passes in as EngineServices; a reply wakes the object. The parts
of Provider, Budget and Function are in capacity/ and money/.
"""
