"""`make bench`: every figure of the README, or those whose name is given.

python -m tests.bench [NAME ...]; an unknown name tells which there are
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from tests.bench import (
    bayes,
    changes,
    curves,
    daytona,
    endpoints,
    finished,
    graph,
    modal,
    operator,
    outputs,
    own_machines,
    page,
    path,
    prompts,
    publication,
    queues,
    ray_ready,
    rlstep,
    samples,
    screens,
    shortform,
    smalljobs,
    sources,
    sweeps,
    taskfiles,
    tasks,
    wandbfiles,
)
from tests.bench.harness import Figure

BENCHES: dict[str, Callable[[], Iterable[Figure]]] = {
    "tasks": tasks.against_the_seeds_loop,
    "many": tasks.many_tasks,
    "smalljobs": smalljobs.small_jobs,
    "reads": screens.reads,
    "applies": screens.applies,
    "starting": screens.starting,
    "idle": screens.idle,
    "finished": finished.beside_finished,
    "asked": finished.while_many_run,
    "short": shortform.figures,
    "plans": changes.plans,
    "reviews": changes.reviews,
    "watches": changes.watches,
    "trials": sweeps.random_trials,
    "reports": sweeps.reports,
    "bayes": bayes.figures,
    "wandb": wandbfiles.reading,
    "curves": curves.figures,
    "ray": ray_ready.figures,
    "publication": publication.figures,
    "page": page.figures,
    "graph": graph.figures,
    "samples": samples.figures,
    "queues": queues.figures,
    "path": path.figures,
    "modal": modal.figures,
    "daytona": daytona.figures,
    "endpoints": endpoints.figures,
    "operator": operator.figures,
    "outputs": outputs.figures,
    "sources": sources.figures,
    "taskfiles": taskfiles.figures,
    "prompts": prompts.figures,
    "batches": prompts.batched,
    "rlstep": rlstep.figures,
    "ssh": own_machines.ssh_figures,
    "slurm": own_machines.slurm_figures,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(
            f"error: no benchmark `{unknown[0]}`; there are {', '.join(BENCHES)}", file=sys.stderr
        )
        return 2
    print(screens.machine())
    print("| what | measured | goal | |\n| --- | --- | --- | --- |")
    for name in names or BENCHES:
        for figure in BENCHES[name]():
            print(figure, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
