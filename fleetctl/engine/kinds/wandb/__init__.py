"""Acts as the W&B agent of sweeps whose parameters come from W&B.

For each such Sweep wandb_agents.py runs one task beside the ticks, from its first pass until it has
finished. A turn, in wandb_agent.py, finds or makes the sweep, polls its state, and requests a run
by heartbeat for each trial that could begin. A pass sends the number of wanted runs, and reads the
last report. sweep_link.py stores the link and each assigned run as an annotation of the object
before any action depends on it, so that neither a lost reply nor a restart makes a sweep or a trial
twice. An error of W&B delays the turns of its sweep and shows in its status.
"""
