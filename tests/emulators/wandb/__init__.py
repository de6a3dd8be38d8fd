"""An emulator of W&B's backend: one loopback server that the unmodified `wandb` package works with.

    with WandbEmulator() as emulator:          # running.py: in a process of its own
        name = emulator.do("create_sweep", config=YAML)
        ...                                    # programs and `wandb agent`s with `emulator.env`
        assert emulator.sweep(name)["state"] == "FINISHED"

In-process: `async with server.Server() as server`, with `server.world` and `admin.Verbs(server)`.

What clients ask, in which documents and with which answers, is taken from the package and seen in
its traffic, as are messages of errors that its users quote. A field, an input or a filter that the
package does not use is refused as an unknown one, so that a misspelled one is seen. The rules of
the service itself (world/handing.py, the states in world/sweeps.py) are not public; what is a guess
is called one, and where two are likely a setting (world/settings.py) chooses.

- Ground truth: `state()` has sweeps (every state they had), runs (which agents were handed each,
  how many processes began it, its config, history, summary), agents (what each was handed) and
  requests by operation; `log()` has the newest requests whole. Keys are in neither.
- Faults: `fault(operation, status= | drop= | page= | delay_s=, when=, skip=, count=)`, see
  faults.py; `do("go_away")` and `do("come_back")` for the service as a whole.
- What people do on the web page: `do("move_sweep" | "delete_sweep" | "stop_run" | …)`, see
  admin.py.
- Keys: `emulator.api_key` sees the entity `acme`; settings.FOREIGN_KEY sees another one alone.
- Programs: light.py is one that costs no wandb.
"""
