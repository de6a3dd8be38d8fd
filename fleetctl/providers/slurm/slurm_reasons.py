"""Puts a job's state and the scheduler's reason into words that people know, with what helps.

Called by slurm_queue.py; pure. The reasons are those of Slurm 22.05; its limits are read by the
parts of their names, as there are more than a hundred.
"""

from __future__ import annotations

import re

# A reason is looked for by the beginning of its name, the longest first: some end with details.
_REASONS = {
    "None": "the scheduler has not looked at it yet",
    "Resources": "waits for free nodes; smaller `resources` may start sooner",
    "Priority": "others are before it in the queue",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "the job that it waits for has failed",
    "JobHeldUser": "it is held; `scontrol release {job}` lets it go",
    "JobHeldAdmin": "an administrator holds it; only they can let it go",
    "JobHoldMaxRequeue": "it is held after too many starts; `scontrol release {job}` lets it go",
    "BeginTime": "its earliest start is not reached",
    "DeadLine": "it cannot end before its deadline any more",
    "Licenses": "waits for a license that others use",
    "Reservation": "waits for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted; change `options` of the Provider object",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "it asks for more than a node of its partition has",
    "PartitionTimeLimit": "it asks for more time than its partition gives; set a `timeoutSeconds`",
    "PartitionConfig": "its partition does not allow such a job",
    "ReqNodeNotAvail": "a node that it needs is reserved or down",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has the features that it asks for; see `constraint`",
    "FrontEndDown": "the machine that starts jobs is down",
    "PowerNotAvail": "waits for electric power",
    "PowerReserved": "waits for electric power",
    "SchedDefer": "the scheduler starts it with its next look at the queue",
    "FedJobLock": "another cluster of the federation looks at it",
    "Cleaning": "what an earlier start of it left is being removed",
    "Prolog": "its nodes are being prepared",
    "BlockMaxError": "its nodes failed too often",
    "BlockFreeAction": "its nodes are being made free",
    "BurstBuffer": "its data are being staged",
    "SystemFailure": "Slurm failed to start it",
    "JobLaunchFailure": "its node could not start it",
    "NonZeroExitCode": "it failed",
    "TimeLimit": "it reached its time limit",
    "InactiveLimit": "it was idle for too long",
    "OutOfMemory": "it used more memory than it had asked for",
    "MaxMemPerLimit": "it asks for more memory than a job may have",
    "JobArrayTaskLimit": "as many tasks of its array run as may",
    "InvalidAccount": "its account does not exist; change `account` of the Provider object",
    "AccountNotAllowed": "its partition does not allow its account",
    "AccountingPolicy": "a limit of your account is reached",
    "InvalidQOS": "its quality of service (QOS) does not exist; change `qos`",
    "QOSNotAllowed": "its partition does not allow its quality of service (QOS)",
    "QOSUsageThreshold": "your quality of service (QOS) has used its share",
    "QOSJobLimit": "your quality of service (QOS) runs no more jobs now",
    "QOSResourceLimit": "your quality of service (QOS) gives no more now",
    "QOSTimeLimit": "it asks for more time than your quality of service (QOS) gives",
    "AssociationJobLimit": "your account runs no more jobs now",
    "AssociationResourceLimit": "your account gives no more now",
    "AssociationTimeLimit": "it asks for more time than your account gives",
}
_LIMIT = re.compile(
    r"(?P<owner>QOS|Assoc|)(?P<sort>Grp|Max|Min)"
    r"(?P<thing>Cpu|CPU|Node|Memory|Mem|Jobs?|Submit|Wall|GRES|License|Energy|BB|Billing|Unknown)"
    r"(?P<rest>\w*)"
)
_OWNERS = {"QOS": "quality of service (QOS)", "Assoc": "account", "": "account"}
_THINGS = {
    "Cpu": "cores",
    "CPU": "cores",
    "Node": "nodes",
    "Mem": "memory",
    "Memory": "memory",
    "Job": "jobs",
    "Jobs": "jobs",
    "Submit": "waiting jobs",
    "Wall": "time",
    "GRES": "GPUs",
    "License": "licenses",
    "Energy": "energy",
    "BB": "burst buffers",
    "Billing": "billing units",
    "Unknown": "units of a resource",
}
_STATES = {
    "PENDING": "is pending",
    "CONFIGURING": "has its nodes, which start up",
    "REQUEUED": "was put back into the queue",
    "REQUEUE_HOLD": "was put back into the queue and is held",
}
# States of a job that has its nodes and does not work, with the command that lets it go on.
HALTED = {"SUSPENDED": "scontrol resume {job}", "STOPPED": "scancel --signal=CONT {job}"}


def explain_reason(reason: str, job: str) -> str:
    """Returns why the job does not run, in words; "" for a reason that is not known."""
    found = max((it for it in _REASONS if reason.startswith(it)), key=len, default="")
    if found == reason or (found and not _LIMIT.match(reason)):
        return _REASONS[found].format(job=job)
    limit = _LIMIT.match(reason)
    return _explain_limit(limit) if limit is not None else ""


def _explain_limit(limit: re.Match[str]) -> str:
    owner, thing, rest = _OWNERS[limit["owner"]], _THINGS[limit["thing"]], limit["rest"]
    if "Minutes" in rest:
        thing = f"minutes of {thing}"
    if limit["sort"] == "Min":
        return f"its {owner} demands more {thing} than it asks for"
    if limit["sort"] == "Grp":
        return f"your {owner}, with all its users, gets no more {thing} now"
    if "PerJob" in rest or "PerNode" in rest:
        each = "a node" if "PerNode" in rest else "a job"
        return f"it asks for more {thing} than {each} of your {owner} may have"
    if limit["thing"] in ("Job", "Jobs"):
        return f"your {owner} runs no more jobs of yours now"
    return f"your {owner} gives you no more {thing} now"


def explain_state(state: str) -> str:
    return _STATES.get(state, f"is {state.lower()}")
