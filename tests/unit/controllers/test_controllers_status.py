"""The status of a resource."""

from __future__ import annotations

from dataclasses import replace

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
    [failure] = play.status["failures"]
    assert failure["index"] == 2 and failure["exitCode"] == 1
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


def worked(play: Play) -> tuple[float, float | None]:
    return play.status["workedSeconds"], play.status["workingSince"]


def test_work_is_timed_without_what_lies_between() -> None:
    play = Play(job(completions=2, parallelism=1))
    play.turn()
    play.confirm_starts()
    play.now_s += 3
    play.turn()
    assert worked(play) == (0.0, START_S)
    play.succeed(0)
    play.turn()
    assert worked(play) == (3.0, None)  # the next one starts, and has not begun
    play.now_s += 50  # it waits for room
    play.confirm_starts()
    play.turn()
    assert worked(play) == (3.0, START_S + 53)
    play.now_s += 4
    play.succeed(1)
    play.restart()
    play.turn()
    assert worked(play) == (7.0, None)
    assert (play.status["phase"], play.status["completionTime"]) == ("Succeeded", START_S + 57)


def test_a_refusal_is_no_work_however_long_it_lasts() -> None:
    play = Play(job(completions=1))
    play.turn()
    play.refuse(0, "uv is not installed")
    play.turn()
    play.now_s += 51
    name, (run, result) = next(iter(play.rows.items()))
    play.rows[name] = (replace(run, template_hash=""), result)  # as an apply of the same file does
    play.change()
    play.turn()
    play.confirm_starts()
    play.now_s += 3
    play.succeed(0)
    play.turn()
    assert (play.status["phase"], *worked(play)) == ("Succeeded", 3.0, None)


def test_spans_of_work_are_joined_whatever_the_order_in_which_they_end() -> None:
    play = Play(job(completions=3, parallelism=3))
    play.turn()
    play.confirm_starts()  # three begin together and end after 5, 2 and 9 s
    for after_s, index in ((2, 1), (3, 0), (4, 2)):
        play.now_s += after_s
        play.succeed(index)
        play.turn()
    assert worked(play) == (9.0, None)
    live, again = worked(play), play.replayed()[1].working.figures(())
    assert live == again


def test_the_gpu_that_its_sandboxes_ask_for_is_told() -> None:
    play = Play(job(template={"python": "pass", "resources": {"gpu": "A100:4"}}, parallelism=0))
    plain = Play(job(parallelism=0))
    play.turn()
    plain.turn()
    assert (play.status["gpu"], plain.status["gpu"]) == ("A100:4", "")


def test_tasks_that_the_spec_has_no_more_are_told() -> None:
    play = Play(job(completions=4, parallelism=4))
    play.turn()
    play.succeed(0, 1, 3)
    play.change(completions=2)
    play.turn()
    play.confirm()  # task 2 ran, and is stopped
    play.turn()
    assert (play.status["phase"], play.status["unwantedIndexes"]) == ("Succeeded", "2-3")
    assert play.replayed()[1].unwanted.text() == "2-3"
    play.change(completions=4)
    play.turn()
    assert play.status["unwantedIndexes"] == ""
