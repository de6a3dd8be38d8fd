"""Every reason that a person can meet, with a sentence: in `status.reason`, beside an attempt, in a
wait, and as the name of an event. A test holds this list against the code; `explain`, the
reference and the check of `onReasons` come from it. Pure.

Two reasons carry a value behind a colon: `ExitCode:3` and `Signal:SIGKILL`.
"""

from __future__ import annotations

# Why an object stands as it does.
OF_OBJECTS = {
    "AwaitsPrior": "`priorTrials` names a sweep that is not over yet, or that is not there.",
    "AwaitsBest": "`paramsFrom` names a sweep whose best trial is not known yet.",
    "AwaitsWandb": "W&B is asked for the sweep that `backend: wandb` stands for.",
    "BackoffLimitExceeded": "Over all units, more attempts failed than `backoffLimit` allows.",
    "BudgetExceeded": "What is used or set aside has reached a budget's `maxCost`.",
    "BudgetExhausted": "A budget has too little left for one more run; more money lets it go on.",
    "BudgetTooSmall": "One unit may cost more than its whole budget; it can never start under it.",
    "CanceledByWandb": "The sweep was cancelled at W&B; its trials were stopped.",
    "Completed": "Everything that was declared is done.",
    "Creating": "What the object stands for is being made at its provider.",
    "Crowded": "A limit leaves no room now; the end of another sandbox makes it.",
    "DeadlineExceeded": "`activeDeadlineSeconds` has passed.",
    "Deleted": "It was deleted, and what it held is being ended.",
    "FailedIndexes": "Some tasks are given up, so the whole cannot succeed.",
    "FailedTrials": "Some trials are given up, so the whole cannot succeed.",
    "FailureRule": "An attempt failed in a way for which `failurePolicy` says FailJob.",
    "Finished": "It was over; what is left of it is freed.",
    "Finishing": "It is over; what still runs is ended first.",
    "Full": "The provider's limits leave no room for another sandbox.",
    "InProgress": "It makes progress.",
    "InUse": "Something still uses what is to be removed.",
    "MaxFailedIndexesExceeded": "More units were given up than `maxFailedIndexes` allows.",
    "NoPrior": "The sweep that `priorTrials` names has another metric, or several.",
    "NoBest": "The sweep that `paramsFrom` names ended without a best trial.",
    "NoPlace": "No candidate of its placement can take the work; the message says why of each.",
    "NoTimeLimit": "Under a budget nothing starts that has no limit of time: it has no bound.",
    "PausedByWandb": "The sweep is paused at W&B; nothing more begins until it is resumed there.",
    "PriceUnknown": "Under a budget nothing starts whose price nobody knows.",
    "NoProvider": "This version has no provider of that name or type.",
    "ParametersUnread": "A trial read its parameters nowhere, so the search says nothing.",
    "Quarantined": "A pass over this object raised an error; it is tried again ever more rarely.",
    "Ready": "It stands as declared.",
    "Refused": "A provider refused the work, twice, and no other candidate is left.",
    "StageFailed": "A stage is given up, so the training cannot go on.",
    "SuccessPolicy": "What `successPolicy` asks for is done.",
    "Suspended": "`suspend` is set: nothing runs and nothing starts.",
    "TargetReached": "A trial reached the metric's `target`.",
    "WandbSweepGone": "W&B has no such sweep, or not any more; it was asked three times.",
    "Waiting": "It waits for another object of its name, or for one that uses it, to be gone.",
}

# Why a start waits. `account` reasons concern all work of one account.
OF_WAITS = {
    "AccessDenied": "The account may not do this; another key or permission lifts it.",
    "Building": "The image is being built; `fleetctl logs --build` shows it.",
    "FunctionMissing": "The Function that the template names is not declared.",
    "KeyMissing": "The controller has no credentials for this provider.",
    "KeyRefused": "The service does not accept the key.",
    "NoCapacity": "The provider has no machine of this sort free now.",
    "NoSuchMachine": "This machine never has what the template asks for.",
    "Paused": "The sandbox is paused at its provider and is started again.",
    "Queued": "The provider has put the start in line.",
    "Quota": "The account's quota is reached; it starts when another sandbox ends.",
    "QuotaExceeded": "As `spillOver.on` names it: quota, spending limit or a suspended account.",
    "ProviderDegraded": "As `spillOver.on` names it: the service does not answer as it should.",
    "RateLimited": "The service limits the rate of calls; they wait as long as it says.",
    "RefusedOnce": "The provider refused this template once; it is asked again before that counts.",
    "SandboxBusy": "The sandbox still executes another task.",
    "SecretMissing": "A value that a Secret names is not there.",
    "SnapshotNotReady": "The snapshot is not ready to start sandboxes from.",
    "SourceMissing": "The copy of the source that the apply kept is gone.",
    "SourceUnreachable": "The repository does not answer.",
    "SpendLimit": "The account's spending limit or credits are used up.",
    "StartUnknown": "The answer to a start was lost; it is looked up by name.",
    "Unavailable": "The service says that it cannot take the work now; it is asked again.",
    "UnknownAnswer": "The service's answer is unknown to this version; it is asked again.",
    "Unreachable": "The service does not answer.",
    "VolumeInUse": "The volume is still held by something.",
    "VolumeNotReady": "The volume is being made.",
}

# How an attempt ended.
OF_ATTEMPTS = {
    "Abandoned": "Its object was deleted without waiting for the provider's confirmation.",
    "BegunAsAnother": "Other work has begun under its name; the unit gets another attempt.",
    "Cached": "No attempt was made: an equal unit had succeeded before.",
    "DiskRefuses": "The disk could not store its record.",
    "EarlyTerminated": "`early_terminate` stopped the trial: it did worse than others had by then.",
    "Error": "The Python program raised an exception.",
    "ExitCode": "The command ended with this exit code.",
    "Idle": "The sandbox had no work for so long that it was ended.",
    "KeeperEnded": "The local supervisor was ended, and the run with it.",
    "MaxLifetime": "Its sandbox reached the longest life that the provider gives.",
    "MetricMissing": "The trial succeeded without the metric that the sweep compares.",
    "NoCheckpoint": "The checkpoint that `checkpoint.resume` names is not there.",
    "NeverBegan": "Its sandbox ran and reported no begin of the work; another attempt was made.",
    "OOMKilled": "It used more memory than it may.",
    "Preempted": "The provider took the machine away.",
    "ProviderLost": "Its sandbox is gone and left no end record.",
    "ProviderTimeout": "The provider ended its sandbox at a limit of time.",
    "QueueTimeout": "The provider ended it while it waited in line.",
    "RefusedHere": "This place does not take the work; another candidate gets it.",
    "Restored": "It ended while a backup was in place; its attempt counts as made.",
    "NodeEnded": "Another node of its attempt had ended, so this one was ended too.",
    "NodeLost": "The machine of one of its nodes went away.",
    "NodesNotReady": "Not all of its nodes were ready to begin in time.",
    "RayFailed": "Its Ray cluster did not come up, or broke down under the work.",
    "ResultInvalid": "What it handed in is not a JSON object, or too large.",
    "SandboxClosed": "Its shared sandbox had closed; the unit goes to another one.",
    "SandboxEnded": "Its sandbox was ended from outside.",
    "SandboxFailed": "The provider could not start its sandbox.",
    "SandboxStuck": "Its sandbox was under way for too long and was given up.",
    "ScaledDown": "`parallelism` was lowered.",
    "Signal": "It was ended by this signal.",
    "SourceFailed": "Its source could not be fetched in the sandbox.",
    "SpilledOver": "Its place had no room for too long; the unit starts at the next candidate.",
    "Stalled": "It had no new step, checkpoint or output for as long as `progress` allows.",
    "StartFailed": "The program could not be started.",
    "Stopped": "It was asked to stop.",
    "StoppedByWandb": "The run was stopped at W&B; its trial is over, and not run again.",
    "SyncFailed": "What it wrote to a volume could not be committed.",
    "Terminated": "Somebody ended its sandbox at the provider.",
    "Timeout": "`timeoutSeconds` passed.",
    "Unknown": "The provider does not say how its sandbox ended.",
    "VolumeNotReloaded": "A volume with open files could not be read anew; tried again elsewhere.",
}

# What else is told as an event.
OF_EVENTS = {
    "CheckpointSetAside": "A checkpoint was moved away: unfinished, or newer than the one resumed.",
    "Resumed": "An attempt went on from a checkpoint.",
    "SteppedBack": "Attempts from the newest checkpoint kept failing; an earlier one is tried.",
    "SuggestionFailed": "A bayes search could not work out its next trial; it is tried again.",
    "AssetFailed": "Making or removing a volume or function failed; it is tried again.",
    "BudgetWarning": "A budget crossed one of its `warnAt` levels.",
    "EndHeld": "A run has ended and its sandbox is not confirmed gone yet.",
    "GpuNotTold": "A run did not report which GPU of a list it got; it is charged as the dearest.",
    "MetricsUnread": "What a program printed or wrote could not be read as its `metrics` say.",
    "NeedsAttention": "Many stops of a run were not confirmed; it is tried again.",
    "TrialsTaken": "`priorTrials` has given a search the ended trials of another sweep.",
    "ParametersTaken": "`paramsFrom` has given the work the parameters of a sweep's best trial.",
    "Remark": "Worth knowing of the first success; later ones have it in their message.",
    "SameMetric": "All trials so far have the same metric, as if parameters did nothing.",
    "SpillOver": "Work runs over to another provider.",
    "WandbCannotTell": "An older W&B does not say what an unheard answer of its has done.",
    "WandbLeft": "The object is deleted, and its sweep at W&B could not be ended.",
    "WandbRunFound": "W&B had handed out a run by an answer that was lost; it begins now.",
    "WandbSweep": "Where the object's sweep is at W&B.",
    "WandbWarning": "W&B's own warning about the configuration of a sweep.",
    "StopFailed": "A stop failed; it is tried again.",
}

REASONS = {**OF_OBJECTS, **OF_WAITS, **OF_ATTEMPTS, **OF_EVENTS}


def is_reason(word: str) -> bool:
    """Whether anything can have this reason; `ExitCode:3` and `Signal:SIGTERM` too."""
    return word.partition(":")[0] in REASONS
