"""The verbs: one row each, and the names of other tools' verbs here."""

from __future__ import annotations

from enum import Flag, auto
from typing import NamedTuple

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class VerbTargets(Flag):
    """The objects that a verb can act on."""

    NOTHING = 0
    VOLUMES = auto()  # that hold files
    RUNS = auto()  # objects that do work
    SCHEDULES = auto()  # that make such objects
    SOURCES = auto()  # that keep objects equal to a repository
    OBJECTS = auto()  # of every kind


class CommandVerb(NamedTuple):
    """One verb. `module` has `parser(verb) -> Parser` and `run(args, screen) -> int`.

    takes: the objects that it acts on, for `api-resources`. namespaced: it names objects or lists
    them, and takes `-n`; SQL queries, and verbs on the whole store or machine, span all namespaces.
    """

    module: str
    summary: str
    takes: VerbTargets = VerbTargets.NOTHING
    namespaced: bool = False


VERBS = {
    "apply": CommandVerb(
        "apply.apply", "make the world look like these files", VerbTargets.OBJECTS, namespaced=True
    ),
    "plan": CommandVerb(
        "apply.plans.plan",
        "show what an apply would do, where, and what it would cost",
        namespaced=True,
    ),
    "run": CommandVerb(
        "apply.run", "run a command: by flags, or in the environment of a file", namespaced=True
    ),
    "diff": CommandVerb(
        "apply.diff", "show how what is stored differs from these files", namespaced=True
    ),
    "validate": CommandVerb(
        "apply.validate", "check files without storing anything", namespaced=True
    ),
    "render": CommandVerb("apply.render", "print files with their variables and overlays put in"),
    "get": CommandVerb(
        "show.get", "list objects, tasks and attempts", VerbTargets.OBJECTS, namespaced=True
    ),
    "describe": CommandVerb(
        "show.describe",
        "show one object in full: its state, and why",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "graph": CommandVerb(
        "report.graph",
        "draw which objects depend on which, with their phases",
        VerbTargets.RUNS,
        namespaced=True,
    ),
    "logs": CommandVerb(
        "follow.logs", "show what tasks printed", VerbTargets.RUNS, namespaced=True
    ),
    "results": CommandVerb(
        "report.results", "show what tasks submitted", VerbTargets.RUNS, namespaced=True
    ),
    "plot": CommandVerb(
        "report.plot",
        "draw a sweep, or what tasks reported over their steps",
        VerbTargets.RUNS,
        namespaced=True,
    ),
    "top": CommandVerb(
        "report.top", "show what runs now, and what it costs an hour", namespaced=True
    ),
    "cost": CommandVerb(
        "report.cost", "show what was spent, by object, kind, provider or label", namespaced=True
    ),
    "report": CommandVerb(
        "report.report", "write an overview of the fleet as one HTML file", namespaced=True
    ),
    "query": CommandVerb("report.query", "ask with SQL what ran, where, and what it cost"),
    "exec": CommandVerb(
        "access.exec", "run a command beside a task that runs", VerbTargets.RUNS, namespaced=True
    ),
    "port-forward": CommandVerb(
        "access.port_forward",
        "let a port here lead to one of a task that runs",
        VerbTargets.RUNS,
        namespaced=True,
    ),
    "ls": CommandVerb(
        "access.ls", "list the files in a volume", VerbTargets.VOLUMES, namespaced=True
    ),
    "cp": CommandVerb(
        "access.cp",
        "copy files into a volume or a task, or out of it",
        VerbTargets.RUNS | VerbTargets.VOLUMES,
        namespaced=True,
    ),
    "rm": CommandVerb(
        "access.rm", "remove files from a volume", VerbTargets.VOLUMES, namespaced=True
    ),
    "wait": CommandVerb(
        "follow.wait",
        "block until something holds, or can no longer hold",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "events": CommandVerb(
        "show.events", "show what happened, as sentences", VerbTargets.OBJECTS, namespaced=True
    ),
    "delete": CommandVerb(
        "change.delete",
        "stop the work of objects and remove them",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "create": CommandVerb(
        "change.create",
        "run what a schedule makes now, by hand",
        VerbTargets.SCHEDULES,
        namespaced=True,
    ),
    "reconcile": CommandVerb(
        "change.reconcile",
        "look at a repository now, and make its objects equal to it",
        VerbTargets.SOURCES,
        namespaced=True,
    ),
    "suspend": CommandVerb(
        "change.suspend",
        "stop work and start none until resumed",
        VerbTargets.RUNS | VerbTargets.SCHEDULES | VerbTargets.SOURCES,
        namespaced=True,
    ),
    "resume": CommandVerb(
        "change.suspend",
        "let suspended work go on",
        VerbTargets.RUNS | VerbTargets.SCHEDULES | VerbTargets.SOURCES,
        namespaced=True,
    ),
    "retry": CommandVerb(
        "change.retry", "let tasks that ended run again", VerbTargets.RUNS, namespaced=True
    ),
    "rerun": CommandVerb(
        "change.retry",
        "run all tasks again on purpose, whatever is known",
        VerbTargets.RUNS,
        namespaced=True,
    ),
    "set": CommandVerb(
        "change.set",
        "change fields of a stored object, checked as an apply would",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "scale": CommandVerb(
        "change.set",
        "let more or fewer tasks run at the same time",
        VerbTargets.RUNS,
        namespaced=True,
    ),
    "label": CommandVerb(
        "change.label",
        "add, change or remove labels of stored objects",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "annotate": CommandVerb(
        "change.label",
        "add, change or remove annotations of stored objects",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "edit": CommandVerb(
        "change.edit",
        "change a stored object in your editor, checked as an apply would",
        VerbTargets.OBJECTS,
        namespaced=True,
    ),
    "up": CommandVerb("system.controller", "run the controller"),
    "down": CommandVerb("system.controller", "stop the controller; work goes on"),
    "backup": CommandVerb("system.backup", "copy the state to one file, while work goes on"),
    "restore": CommandVerb("system.backup", "put back the state that `backup` wrote"),
    "gc": CommandVerb(
        "system.gc", "delete finished work and caches that are past their limits, or list them"
    ),
    "status": CommandVerb(
        "system.controller", "show whether the controller runs, and how much there is"
    ),
    "serve": CommandVerb("team.serve", "serve the API of a team: page, scripts, `--server`"),
    "token": CommandVerb("team.token", "make, list and end the tokens of a team's server"),
    "audit": CommandVerb(
        "team.audit", "show who changed something over the server, or read logs", namespaced=True
    ),
    "login": CommandVerb("team.login", "use the server of a team, with a token of yours"),
    "config": CommandVerb("team.login", "choose the server that the other verbs use"),
    "mcp": CommandVerb("team.mcp", "serve the verbs to a coding agent, within limits"),
    "operator": CommandVerb("system.operator", "run the controller in a Kubernetes cluster"),
    "orphans": CommandVerb(
        "change.orphans", "find sandboxes that no object remembers, and end them"
    ),
    "doctor": CommandVerb(
        "system.doctor", "check what this machine can do, and how to fix the rest"
    ),
    "bundle": CommandVerb("system.bundle", "pack what a report about a bug needs, without secrets"),
    "init": CommandVerb("learn.init", "write a first manifest that runs as it is"),
    "skills": CommandVerb("learn.skills", "write a skill from which coding agents learn fleetctl"),
    "convert": CommandVerb("learn.convert", "write a file of another tool as a manifest"),
    "explain": CommandVerb("learn.explain", "show what a manifest may hold, field by field"),
    "schema": CommandVerb("learn.schema", "print the JSON Schema of a kind"),
    "api-resources": CommandVerb("learn.api_resources", "list the kinds and their short names"),
    "completion": CommandVerb(
        "learn.completion", "print the script that completes words in a shell"
    ),
    "version": CommandVerb("system.version", "print the version"),
}


# As `fleetctl --help` shows them: each verb under one heading.
GROUPS = {
    "write files, and apply them": (
        "init", "explain", "validate", "plan", "apply", "diff", "render", "convert", "schema",
    ),
    "run without a file": ("run", "create"),
    "look at what runs": (
        "get", "describe", "logs", "events", "top", "cost", "results", "plot", "graph", "query",
        "report", "wait",
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
    "share one server with a team": ("serve", "token", "audit", "login", "config", "mcp"),
    "learn more": ("api-resources", "skills", "completion", "version"),
}  # fmt: skip


# Flags of kubectl and terraform that do not exist here, and their replacements.
_YES = "fleetctl apply -f FILE --yes"
_KUSTOMIZE = "a `kind: Overlay` does the same; or `kustomize build DIR | fleetctl {verb} -f -`"
FLAGS_ELSEWHERE = {
    "-k": _KUSTOMIZE,
    "--kustomize": _KUSTOMIZE,
    "-auto-approve": _YES,
    "--auto-approve": _YES,
}
# The words that users of kubectl, terraform, docker or SkyPilot type, and their equivalents here.
OTHER_TOOL_VERBS = {
    "undo": "`fleetctl apply -f FILE` of the former file; what succeeded is not run again",
    "rollback": "`fleetctl apply -f FILE` of the former file; what succeeded is not run again",
    "rollout": "`fleetctl rerun KIND/NAME` runs all again; to go back, `fleetctl apply -f FILE`",
    "offers": "`fleetctl plan -f FILE` prices a machine; `fleetctl describe provider/NAME`",
    "gpus": "`fleetctl plan -f FILE` prices a machine; `fleetctl doctor` lists this machine's",
    "show-gpus": "`fleetctl plan -f FILE` prices a machine; `fleetctl doctor` lists this machine's",
    "artifacts": "`fleetctl get artifacts KIND/NAME`; `fleetctl cp job/NAME:INDEX/PATH .`",
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
    "export": "`fleetctl results KIND/NAME -o csv`; `fleetctl get KIND/NAME -o yaml` the object",
    "download": "`fleetctl cp volume/NAME:/ DIR`, or `fleetctl results KIND/NAME --to DIR`",
    "upload": "fleetctl cp FILE volume/NAME:/",
    "logout": "there is no login; `fleetctl doctor` shows whose credentials are used",
    "inspect": "fleetctl describe KIND/NAME",
    "prune": "`fleetctl gc` frees the disk; `fleetctl apply --prune` deletes what left the files",
    "watch": "`fleetctl get KIND -w`, or `fleetctl apply -f FILE --watch`",
    "ui": "`fleetctl top -w`, or `fleetctl get all -w`",
    "dashboard": "`fleetctl top -w`, or `fleetctl get all -w`",
}


EXIT_CODES = (
    "0 ok, 1 failed, 2 wrong usage or manifest, 3 refused, 4 not found, 5 conflict,\n"
    "  124 timed out, 130 interrupted (work goes on)"
)
