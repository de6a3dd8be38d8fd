"""The verbs: one row each, and what verbs of other tools are called here."""

from __future__ import annotations

from enum import Flag, auto
from typing import NamedTuple

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class Takes(Flag):
    """What a verb can be done to."""

    NOTHING = 0
    VOLUMES = auto()  # that hold files
    RUNS = auto()  # objects that do work
    SCHEDULES = auto()  # that make such objects
    SOURCES = auto()  # that keep objects equal to a repository
    OBJECTS = auto()  # of every kind


class Verb(NamedTuple):
    """`module` has `parser(verb) -> Parser` and `run(args, screen) -> int`.

    takes: what it can be done to, for `api-resources`. namespaced: it names objects or lists them,
    and takes `-n`; what is asked with SQL, and what is of the whole store or machine, spans all
    namespaces.
    """

    module: str
    summary: str
    takes: Takes = Takes.NOTHING
    namespaced: bool = False


VERBS = {
    "apply": Verb(
        "apply.apply", "make the world look like these files", Takes.OBJECTS, namespaced=True
    ),
    "plan": Verb(
        "apply.plans.plan",
        "show what an apply would do, where, and what it would cost",
        namespaced=True,
    ),
    "run": Verb(
        "apply.run", "run a command: by flags, or in the environment of a file", namespaced=True
    ),
    "diff": Verb("apply.diff", "show how what is stored differs from these files", namespaced=True),
    "validate": Verb("apply.validate", "check files without storing anything", namespaced=True),
    "render": Verb("apply.render", "print files with their variables and overlays put in"),
    "get": Verb("show.get", "list objects, tasks and attempts", Takes.OBJECTS, namespaced=True),
    "describe": Verb(
        "show.describe",
        "show one object in full: why it stands where it stands",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "graph": Verb(
        "report.graph",
        "draw which objects depend on which, and how each stands",
        Takes.RUNS,
        namespaced=True,
    ),
    "logs": Verb("follow.logs", "show what tasks printed", Takes.RUNS, namespaced=True),
    "results": Verb("report.results", "show what tasks submitted", Takes.RUNS, namespaced=True),
    "plot": Verb(
        "report.plot",
        "draw a sweep, or what tasks reported over their steps",
        Takes.RUNS,
        namespaced=True,
    ),
    "top": Verb("report.top", "show what runs now, and what it costs an hour", namespaced=True),
    "cost": Verb(
        "report.cost", "show what was spent, by object, kind, provider or label", namespaced=True
    ),
    "query": Verb("report.query", "ask with SQL what ran, where, and what it cost"),
    "exec": Verb(
        "access.exec", "run a command beside a task that runs", Takes.RUNS, namespaced=True
    ),
    "port-forward": Verb(
        "access.port_forward",
        "let a port here lead to one of a task that runs",
        Takes.RUNS,
        namespaced=True,
    ),
    "ls": Verb("access.ls", "list the files in a volume", Takes.VOLUMES, namespaced=True),
    "cp": Verb(
        "access.cp",
        "copy files into a volume or a task, or out of it",
        Takes.RUNS | Takes.VOLUMES,
        namespaced=True,
    ),
    "rm": Verb("access.rm", "remove files from a volume", Takes.VOLUMES, namespaced=True),
    "wait": Verb(
        "follow.wait",
        "block until something holds, or can no longer hold",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "events": Verb(
        "show.events", "show what happened, as sentences", Takes.OBJECTS, namespaced=True
    ),
    "delete": Verb(
        "change.delete", "stop the work of objects and remove them", Takes.OBJECTS, namespaced=True
    ),
    "create": Verb(
        "change.create",
        "run what a schedule makes now, by hand",
        Takes.SCHEDULES,
        namespaced=True,
    ),
    "reconcile": Verb(
        "change.reconcile",
        "look at a repository now, and make its objects equal to it",
        Takes.SOURCES,
        namespaced=True,
    ),
    "suspend": Verb(
        "change.suspend",
        "stop work and start none until resumed",
        Takes.RUNS | Takes.SCHEDULES | Takes.SOURCES,
        namespaced=True,
    ),
    "resume": Verb(
        "change.suspend",
        "let suspended work go on",
        Takes.RUNS | Takes.SCHEDULES | Takes.SOURCES,
        namespaced=True,
    ),
    "retry": Verb("change.retry", "let tasks that ended run again", Takes.RUNS, namespaced=True),
    "rerun": Verb(
        "change.retry",
        "run all tasks again on purpose, whatever is known",
        Takes.RUNS,
        namespaced=True,
    ),
    "set": Verb(
        "change.set",
        "change fields of a stored object, checked as an apply would",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "scale": Verb(
        "change.set", "let more or fewer tasks run at the same time", Takes.RUNS, namespaced=True
    ),
    "label": Verb(
        "change.label",
        "add, change or take away labels of stored objects",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "annotate": Verb(
        "change.label",
        "add, change or take away annotations of stored objects",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "edit": Verb(
        "change.edit",
        "change a stored object in your editor, checked as an apply would",
        Takes.OBJECTS,
        namespaced=True,
    ),
    "up": Verb("system.controller", "run the controller"),
    "down": Verb("system.controller", "stop the controller; work goes on"),
    "backup": Verb("system.backup", "copy the state to one file, while work goes on"),
    "restore": Verb("system.backup", "put back the state that `backup` wrote"),
    "gc": Verb("system.gc", "let go of what is over and past its limit, or tell what would go"),
    "status": Verb("system.controller", "tell whether the controller runs, and how much there is"),
    "operator": Verb("system.operator", "run the controller in a Kubernetes cluster"),
    "orphans": Verb("change.orphans", "find sandboxes that no object remembers, and end them"),
    "doctor": Verb("system.doctor", "tell what this machine can do, and what would mend the rest"),
    "bundle": Verb("system.bundle", "pack what a report about a bug needs, without secrets"),
    "init": Verb("learn.init", "write a first manifest that runs as it is"),
    "convert": Verb("learn.convert", "write a file of another tool as a manifest"),
    "explain": Verb("learn.explain", "tell what can stand in a manifest, field by field"),
    "schema": Verb("learn.schema", "print the JSON Schema of a kind"),
    "api-resources": Verb("learn.api_resources", "list the kinds and their short names"),
    "completion": Verb("learn.completion", "print the script that completes words in a shell"),
    "version": Verb("system.version", "print the version"),
}


# As `fleetctl --help` shows them: each verb under one heading.
GROUPS = {
    "write files, and apply them": (
        "init", "explain", "validate", "plan", "apply", "diff", "render", "convert", "schema",
    ),
    "run without a file": ("run", "create"),
    "look at what runs": (
        "get", "describe", "logs", "events", "top", "cost", "results", "plot", "graph", "query",
        "wait",
    ),
    "change what is stored": (
        "suspend", "resume", "scale", "set", "edit", "label", "annotate", "delete", "reconcile",
    ),
    "run again": ("retry", "rerun"),
    "get into tasks and volumes": ("exec", "port-forward", "ls", "cp", "rm"),
    "look after the controller and its state": (
        "up", "down", "status", "doctor", "backup", "restore", "gc", "orphans", "bundle",
        "operator",
    ),
    "learn more": ("api-resources", "completion", "version"),
}  # fmt: skip


# Flags of kubectl and terraform that are none here, and what does that instead.
_YES = "fleetctl apply -f FILE --yes"
_KUSTOMIZE = "a `kind: Overlay` does the same; or `kustomize build DIR | fleetctl {verb} -f -`"
FLAGS_ELSEWHERE = {
    "-k": _KUSTOMIZE,
    "--kustomize": _KUSTOMIZE,
    "-auto-approve": _YES,
    "--auto-approve": _YES,
}
# What people who come from kubectl, terraform, docker or SkyPilot type, and what does that here.
SAID_ELSEWHERE = {
    "undo": "`fleetctl apply -f FILE` of the former file; what had succeeded is not done anew",
    "rollback": "`fleetctl apply -f FILE` of the former file; what had succeeded is not done anew",
    "rollout": "`fleetctl rerun KIND/NAME` runs all again; to go back, `fleetctl apply -f FILE`",
    "offers": "`fleetctl plan -f FILE` prices a machine; `fleetctl describe provider/NAME`",
    "gpus": "`fleetctl plan -f FILE` prices a machine; `fleetctl doctor` tells this machine's",
    "show-gpus": "`fleetctl plan -f FILE` prices a machine; `fleetctl doctor` tells this machine's",
    "artifacts": "`fleetctl results KIND/NAME`; files are on volumes: `fleetctl ls volume/NAME:/`",
    "notebook": "`fleetctl run -- python FILE` runs a program; `Fleet` of the client works in any",
    "cat": "`fleetctl cp volume/NAME:/FILE .`, or `fleetctl logs KIND/NAME`",
    "docs": "`fleetctl explain KIND`, or the pages below docs/",
    "man": "`fleetctl VERB --help`, or `fleetctl explain KIND`",
    "cancel": "`fleetctl suspend KIND/NAME` stops work and keeps it, `fleetctl delete` removes it",
    "stop": "`fleetctl suspend KIND/NAME` stops work, `fleetctl down` stops the controller",
    "launch": "fleetctl apply -f FILE --wait",
    "replace": "fleetctl apply -f FILE",
    "patch": "fleetctl set KIND/NAME FIELD=VALUE",
    "destroy": "fleetctl delete -f FILE",
    "ps": "fleetctl top",
    "list": "fleetctl get all",
    "show": "fleetctl describe KIND/NAME",
    "log": "fleetctl logs KIND/NAME",
    "start": "`fleetctl resume KIND/NAME`; the controller starts with `fleetctl up`",
    "restart": "fleetctl rerun KIND/NAME",
    "attach": "`fleetctl logs KIND/NAME -f` follows, `fleetctl exec KIND/NAME -it bash` enters",
    "ssh": "fleetctl exec KIND/NAME -it bash",
    "shell": "fleetctl exec KIND/NAME -it bash",
    "pause": "fleetctl suspend KIND/NAME",
    "kill": "`fleetctl suspend KIND/NAME` stops work and keeps it, `fleetctl delete` removes it",
    "remove": "fleetctl delete KIND/NAME",
    "tail": "fleetctl logs KIND/NAME -f --tail 20",
    "history": "`fleetctl events KIND/NAME`, or `fleetctl get attempts KIND/NAME`",
    "submit": "fleetctl apply -f FILE",
    "tasks": "fleetctl get tasks KIND/NAME",
    "jobs": "fleetctl get jobs",
    "queue": "`fleetctl get jobs`; `fleetctl get tasks KIND/NAME --queued` lists what waits",
    "serve": "fleetctl up",
    "export": "`fleetctl results KIND/NAME -o csv`; `fleetctl get KIND/NAME -o yaml` the object",
    "download": "`fleetctl cp volume/NAME:/ DIR`, or `fleetctl results KIND/NAME --to DIR`",
    "upload": "fleetctl cp FILE volume/NAME:/",
    "login": "there is no login; `fleetctl doctor` tells what each account lacks",
    "logout": "there is no login; `fleetctl doctor` tells whose credentials are used",
    "inspect": "fleetctl describe KIND/NAME",
    "prune": "`fleetctl gc` frees the disk; `fleetctl apply --prune` deletes what left the files",
    "watch": "`fleetctl get KIND -w`, or `fleetctl apply -f FILE --watch`",
    "ui": "`fleetctl top -w`, or `fleetctl get all -w`",
    "dashboard": "`fleetctl top -w`, or `fleetctl get all -w`",
    "config": "the state is in $FLEETCTL_HOME; `fleetctl status` tells where that is",
}


EXIT_CODES = (
    "0 ok, 1 failed, 2 wrong usage or manifest, 3 refused, 4 not found, 5 conflict,\n"
    "  124 timed out, 130 interrupted (work goes on)"
)
