"""A fleet: the objects of one state directory, from Python. The command line does the same.

Everything here is synchronous and may be called from a notebook, whose event loop it leaves alone.
Errors are those of `fleetctl.common.errors`, with a `hint`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fleetctl.client.manifests import Declared
from fleetctl.client.objects import (
    Applied,
    Event,
    Line,
    Object,
    Results,
    event_of,
    object_of,
    row_of,
)
from fleetctl.common.clock import SystemClock
from fleetctl.common.deadline import Deadline
from fleetctl.common.errors import Conflict, FleetctlError, NotFound, Refused
from fleetctl.common.home import home as default_home
from fleetctl.daemon.reach import spawn
from fleetctl.daemon.reach.client import raise_refusal, results_of
from fleetctl.daemon.reach.overtaken import Overtaken, describe_overtaking
from fleetctl.daemon.reach.supervision import Supervision
from fleetctl.manifest.files.documents import VALUES, Document, is_address, read_documents
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.goals import Outcome, answer, goal
from fleetctl.views.kinds import Target, kind_of, target
from fleetctl.views.logs import read_bytes
from fleetctl.views.objects import DELETING, View, mapping
from fleetctl.views.reading import Reading, missing, must_find, open_reading
from fleetctl.views.results import result_rows
from fleetctl.views.selectors import matches, selector
from fleetctl.views.tasks import CACHED, Task

log = logging.getLogger("fleetctl.client")

Manifests = Declared | Path | str
Objects = list[Object]
Events = list[Event]
Outcomes = list[Applied]
Deletable = tuple[list[View], list[FleetctlError]]


class GoalMissed(FleetctlError):
    """What is waited for can no longer be met."""


class Fleet:
    """home: the state directory, as `$FLEETCTL_HOME`; None for that of the command line."""

    def __init__(
        self, home: str | Path | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> None:
        self.home = default_home() if home is None else Path(home).expanduser().absolute()
        self.namespace = namespace
        self._works: dict[str, object] = {}  # of what was applied here, as the replies have it

    # -- changing ----------------------------------------------------------------------------------

    def apply(
        self,
        *manifests: Manifests,
        yes: bool = False,
        rerun: bool = False,
        keep_finished: bool = False,
        dry_run: bool = False,
        variables: Mapping[str, object] | None = None,
    ) -> list[Applied]:
        """Make the world look like these manifests: models, texts, or paths of files and
        directories. Applying equal ones twice changes nothing.

        yes: running work or data may be lost. rerun: run all again. keep_finished: finished tasks
        count though their content changed. dry_run: say what would change, and store nothing.
        variables: values of those that the manifests declare.
        Raises Refused where `yes` is needed, UsageError with all that is wrong in any manifest.
        """
        fields = {"yes": yes, "rerun": rerun, "keepFinished": keep_finished, "dryRun": dry_run}
        documents = [it for manifest in manifests for it in _documents(manifest)]
        if variables:
            text = json.dumps(dict(variables), indent=2)
            documents.append(Document("<variables>", text, str(Path.cwd()), role=VALUES))
        reply = self._answered(
            {
                "verb": "apply",
                "tellWork": True,
                "documents": [it._asdict() for it in documents],
                **{name: True for name, wanted in fields.items() if wanted},
                **self._namespaced(),
            }
        )
        if not dry_run:
            self._works |= mapping(reply.get("works"))
        return [_applied(it) for it in results_of(reply)]

    def delete(
        self, *keys: str, yes: bool = False, wait: bool = True, timeout_s: float | None = None
    ) -> Outcomes:
        """Stop the work of objects such as `job/chunks` and remove them; returns what was deleted,
        when nothing of it is left, unless `wait` is false.

        yes: the data of a Volume with `deletionPolicy: Delete` may go. An object that cannot be
        deleted stops no other: once the others are gone, an error names each that is left and why;
        NotFound or Refused as the first of them is. Raises TimeoutError after timeout_s.
        """
        with open_reading(self.home) as reading:
            views, problems = self._deletable(keys, reading, yes=yes)
            living = [seen.key for seen in views if seen.phase != DELETING]
            request = {"verb": "delete", "keys": living, "each": True}
            results = results_of(self._answered(request)) if living else []
            failed = {str(it["key"]): _problem(it) for it in results if it["outcome"] != "deleted"}
            problems += failed.values()
            pending = {it.resource.uid: it.key for it in views if it.key not in failed}
            done = list(pending.values())
            if wait and pending:
                self._until(reading, lambda: _gone(pending, reading), timeout_s, pending.values())
        if problems:
            raise _joined(problems, done)
        said = {it.key: it for it in map(_applied, results)}
        return [said.get(key) or Applied(key, "deleted", "") for key in done]

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, key: str, goal_: str = "complete", *, timeout_s: float | None = None) -> Object:
        """Block until `complete`, `finished`, `failed`, `first-result` or `condition=NAME` holds.

        Starts a controller if none runs. Raises GoalMissed when it can no longer hold, TimeoutError
        after timeout_s, and Conflict where this Fleet applied the object and another apply made
        other work of it since: the error names that change, and waiting once more waits for it.
        """
        wanted = goal(goal_)
        with open_reading(self.home) as reading:
            uid = must_find(self._target(key), reading).resource.uid
            overtaken = Overtaken(self._works)

            def met() -> bool:
                seen = reading.by_uid(uid)
                if seen is not None:
                    overtaken.look(seen)
                if seen is not None and uid in overtaken:
                    del self._works[seen.key]
                    hint = f"fleetctl events {seen.key}"
                    raise Conflict(describe_overtaking(seen, reading), hint=hint)
                verdict = answer(wanted, seen)
                if verdict.outcome is Outcome.IMPOSSIBLE:
                    hint = f"fleetctl describe {key}"
                    raise GoalMissed(f"{key} cannot meet `{goal_}`: {verdict.because}", hint=hint)
                return verdict.outcome is Outcome.MET

            self._until(reading, met, timeout_s, [key])
        return self.get(key)

    # -- reading -----------------------------------------------------------------------------------

    def get(self, key: str) -> Object:
        """One object, such as `job/chunks`. Raises NotFound with the nearest name."""
        with open_reading(self.home) as reading:
            return object_of(must_find(self._target(key), reading), SystemClock().now_s())

    def list(self, kind: str = "", *, labels: str = "") -> Objects:
        """All of a kind, or of all kinds, oldest first. labels: a selector as `-l` takes it."""
        terms, now_s = selector(labels) if labels else (), SystemClock().now_s()
        with open_reading(self.home) as reading:
            found = reading.views(kind_of(kind) if kind else None, namespace=self.namespace)
            chosen = [it for it in found if matches(it.resource.labels, terms)]
            return [object_of(it, now_s) for it in chosen]

    def results(self, key: str) -> Results:
        """What the units submitted, a row for every one that has run."""
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
            return Results([row_of(row) for row in result_rows(seen, reading)])

    def logs(self, key: str, index: int | None = None) -> Iterator[Line]:
        """What the newest attempt of each unit printed so far, or of one, by index; streams. Of a
        cached unit the log of the run whose result it has.
        """
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading)
            for task in reading.tasks(seen, index=index):
                yield from self._lines(seen, task, reading)

    def events(self, key: str = "") -> Events:
        """Of one object, or of the namespace, oldest first."""
        with open_reading(self.home) as reading:
            seen = must_find(self._target(key), reading) if key else None
            return [event_of(it) for it in reading.events(seen, namespace=self.namespace)]

    # -- parts -------------------------------------------------------------------------------------

    def _target(self, key: str) -> Target:
        return target(key, self.namespace)

    def _deletable(self, keys: Sequence[str], reading: Reading, *, yes: bool) -> Deletable:
        """The objects that may go, each once, and an error for each key of another."""
        found: dict[str, View] = {}
        problems: list[FleetctlError] = []
        for wanted in map(self._target, keys):
            seen = reading.find(wanted)
            if seen is None:
                problems.append(missing(wanted, reading))
            elif not yes and seen.spec().get("deletionPolicy") == "Delete":
                text = f"{seen.key}: deleting it deletes its data"
                problems.append(Refused(text, hint="yes=True"))
            else:
                found[seen.resource.uid] = seen
        return list(found.values()), problems

    def _namespaced(self) -> dict[str, object]:
        return {"namespace": self.namespace} if self.namespace != DEFAULT_NAMESPACE else {}

    def _answered(self, message: Mapping[str, object]) -> dict[str, object]:
        reply = spawn.answered(self.home, message)
        if not reply.get("ok"):
            losses = reply.get("losses")
            if isinstance(losses, list) and losses:
                raise Refused("; ".join(map(str, losses)), hint="yes=True does it all the same")
            raise_refusal(reply)
        return reply

    def _until(
        self,
        reading: Reading,
        met: Callable[[], bool],
        timeout_s: float | None,
        whose: Iterable[str],
    ) -> None:
        deadline = Deadline(timeout_s)
        supervision = Supervision(self.home, talk=log.warning, warn=_warn)
        while not met():
            if deadline.passed:
                raise TimeoutError(f"timed out after {timeout_s:g} s: {', '.join(whose)}")
            supervision.check()
            reading.wait_for_change(deadline)

    def _lines(self, seen: View, task: Task, reading: Reading) -> Iterator[Line]:
        uid, run = seen.resource.uid, task.run
        if task.state == CACHED:
            found = reading.source_of(run)
            if found is None:
                return
            uid, _, run = found
        rest = b""
        for data, _ in read_bytes(self.home, uid, run, 0):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield Line(task.run.index, run.attempt, line.decode("utf-8", "replace"))
        if rest:
            yield Line(task.run.index, run.attempt, rest.decode("utf-8", "replace"))


def _documents(manifest: Manifests) -> Sequence[Document]:
    if isinstance(manifest, Declared):
        return [manifest.document()]
    if isinstance(manifest, str) and ("\n" in manifest or manifest.lstrip().startswith("{")):
        return [Document("<text>", manifest, str(Path.cwd()))]
    if not is_address(str(manifest)) and not Path(manifest).exists():
        raise NotFound(
            f"there is no file or directory `{manifest}`", hint="a text has several lines"
        )
    return read_documents([str(manifest)])


def _applied(result: Mapping[str, object]) -> Applied:
    key, outcome = str(result.get("key")), str(result.get("outcome"))
    return Applied(key, outcome, str(result.get("message") or ""))


def _problem(result: Mapping[str, object]) -> FleetctlError:
    """Returns the error for an object that the controller did not delete."""
    sort = NotFound if result.get("outcome") == "missing" else Refused
    return sort(str(result.get("message")), hint=str(result.get("hint") or ""))


def _joined(problems: Sequence[FleetctlError], done: Sequence[str]) -> FleetctlError:
    """Returns one error for all objects that are left, which names those that are gone, too."""
    first = problems[0]
    if len(problems) == 1 and not done:
        return first
    lines = [f"{it} ({it.hint})" if it.hint else str(it) for it in problems]
    if done:
        lines.append(f"deleted all the same: {', '.join(done)}")
    return type(first)("; ".join(lines))


def _gone(pending: dict[str, str], reading: Reading) -> bool:
    for uid in [uid for uid in pending if reading.by_uid(uid) is None]:
        del pending[uid]
    return not pending


def _warn(why: str, hint: str) -> None:
    log.warning("%s; %s", why, hint)
