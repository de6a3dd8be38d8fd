"""The status of a resource."""

from __future__ import annotations

from tests.unit.controllers.play import START_S, Play, job


def conditions(play: Play) -> dict[str, tuple[str, float]]:
    return {
        it["type"]: (it["status"], it["lastTransitionTime"]) for it in play.status["conditions"]
    }


def test_counts_come_from_the_history() -> None:
    play = Play(job(completions=6, parallelism=4, backoffLimitPerIndex=0))
    play.turn()
    play.succeed(0, 1)
    play.fail(2)
    play.turn()
    found = {name: play.status[name] for name in ("total", "active", "succeeded", "failed")}
    assert found == {"total": 6, "active": 3, "succeeded": 2, "failed": 1}
    assert (play.status["completedIndexes"], play.status["failedIndexes"]) == ("0-1", "2")
    assert play.status["lastFailure"] == {"index": 2, "attempt": 1, "reason": "ExitCode:1"}
    assert play.status["where"] == {"local": 3}


def test_times_are_written_once() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.now_s += 5
    play.succeed(0)
    play.turn()
    play.now_s += 100
    play.turn()
    assert play.status["startTime"] == START_S
    assert play.status["firstResultTime"] == START_S + 5
    assert play.status["completionTime"] == START_S + 5


def test_a_condition_keeps_the_time_at_which_it_became_true() -> None:
    play = Play(job(suspend=True))
    play.turn()
    play.now_s += 50
    play.turn()
    assert conditions(play)["Suspended"] == ("True", START_S)
    play.change(suspend=None)
    play.turn()
    assert conditions(play)["Suspended"] == ("False", START_S + 50)


def test_complete_and_failed_are_the_conditions_of_a_kubernetes_job() -> None:
    done, lost = Play(job(completions=1)), Play(job(completions=1))
    for play in (done, lost):
        play.turn()
    done.succeed(0)
    lost.fail(0)
    done.turn()
    lost.turn()
    assert conditions(done) == {"Complete": ("True", START_S)}
    assert conditions(lost) == {"Failed": ("True", START_S)}


def test_a_revived_object_is_no_longer_complete() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.succeed(0)
    play.turn()
    play.change(completions=2)
    play.turn()
    assert conditions(play)["Complete"][0] == "False"
    assert play.status["completionTime"] is None
    assert play.status["observedGeneration"] == 2


def test_a_status_stays_small_however_the_tasks_end() -> None:
    play = Play(job(completions=100_000))
    for index in range(0, 100_000, 2):
        play.history.succeeded.add(index)
        play.history.taken.add(index)
    play.turn()
    assert len(str(play.status)) < 20_000
    assert play.status["completedIndexes"].endswith(",...")
