"""What both guests of remote sandboxes do with a command: its end, its output, its files."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from fleetctl.controllers.model import CheckpointOrder
from fleetctl.guest.ship.library import order_input
from tests.training.rayjobs import RayJobs
from tests.unit.guest.remote_world import Attached, Box, bytes_of, read_bytes


def test_a_command_is_told_from_its_start_to_its_end(box: Box) -> None:
    story = box.script("echo one; echo two >&2")
    assert story.code == 0
    assert (story.kinds[0], story.kinds[-2:]) == ("started", ["ended", "eof"])
    assert story.log == b"one\ntwo\n"
    seen = story.parsed
    assert (seen.supervisor, seen.note, seen.garbage_lines) == ("sb-1", "remote", 0)
    assert seen.ending is not None
    assert (seen.ending.ok, seen.ending.reason, seen.ending.exit_code) == (True, "Completed", 0)
    assert not seen.ending.sandbox_open
    assert seen.started_at_s is not None
    assert seen.started_at_s == seen.ending.started_at_s
    assert seen.started_at_s <= seen.ending.at_s


@pytest.mark.parametrize(
    ("text", "reason", "code"),
    [
        ("exit 7", "ExitCode:7", 7),
        ("kill -SEGV $$", "Signal:SEGV", 139),
        ("kill -TERM $$", "Signal:TERM", 143),
        ("kill -KILL $$", "Signal:KILL", 137),
        ("exit 255", "ExitCode:255", 255),
    ],
)
def test_the_end_of_a_command_is_told_exactly(box: Box, text: str, reason: str, code: int) -> None:
    ended = box.script(text).ended
    assert (ended["ok"], ended["infra"]) == (False, False)
    assert (ended["reason"], ended["exit"]) == (reason, code)


def test_a_command_that_is_not_there_says_so(box: Box) -> None:
    story = box.told(box.order(argv=["no-such-program", "x"]))
    assert (story.ended["ok"], story.ended["infra"]) == (False, False)
    assert (story.ended["reason"], story.ended["exit"]) == ("CommandNotFound", 127)
    assert "`no-such-program` was not found" in story.ended["message"]
    assert b"no-such-program" in story.log


def test_shell_text_in_a_command_is_led_to_script(box: Box) -> None:
    ended = box.told(box.order(argv=["echo hi && ls"])).ended
    assert ended["message"].endswith("no shell reads; shell text is `script: echo hi && ls`")


def test_a_file_that_cannot_be_executed_says_what_to_do(box: Box, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo hi")
    ended = box.told(box.order(argv=[f"{tmp_path}/run.sh"])).ended
    assert (ended["ok"], ended["reason"], ended["exit"]) == (False, "CommandNotFound", 127)
    assert "chmod +x" in ended["message"]


def test_a_command_has_its_arguments_as_they_are(box: Box) -> None:
    wild = ["it's", 'a "b"', "$HOME `x`", "new\nline", "", "ü", "\\", "*", "-n"]
    story = box.told(box.order(argv=["printf", "[%s]", *wild]))
    assert story.log.decode() == "".join(f"[{one}]" for one in wild)


def test_parameters_and_variables_reach_a_command(box: Box) -> None:
    params = {"lr": 0.5, "model-name": "it's small", "layers": [1, 2], "on": True}
    text = (
        'echo "$TASK_LR|$TASK_MODEL_NAME|$TASK_LAYERS|$TASK_ON"; echo "$EXTRA|$FROM_IMAGE";'
        ' echo "$JOB_COMPLETION_INDEX|$FLEETCTL_ATTEMPT|$FLEETCTL_RUN|$FLEETCTL_VOLUME_OF_SUITE";'
        " cat $FLEETCTL_PARAMS"
    )
    volume = {"name": "of-suite", "mount": "/data", "links": [], "read_only": False}
    volume["variable"] = "FLEETCTL_VOLUME_OF_SUITE"
    order = box.order(
        argv=["sh", "-c", text],
        params=params,
        index=7,
        attempt=3,
        env={"EXTRA": "a 'b'\n$c"},
        volumes=[volume],
    )
    story = box.told(order, env={"FROM_IMAGE": "yes"})
    lines = story.log.decode().split("\n", 3)
    assert lines[0] == "0.5|it's small|[1, 2]|true"
    assert "\n".join(lines[1:3]) == "a 'b'\n$c|yes"
    fourth, _, rest = lines[3].partition("\n")
    assert fourth == "7|3|run-0|/data"
    assert json.loads(rest) == params


def test_a_command_begins_in_a_directory_of_its_own_with_nothing_on_stdin(box: Box) -> None:
    story = box.script("pwd; ls -A; cat; echo end")
    assert story.log.decode() == f"{box.directory}/work\nend\n"


def test_a_command_begins_where_its_source_is_and_below_it(box: Box, tmp_path: Path) -> None:
    (tmp_path / "code" / "sub").mkdir(parents=True)
    source = {"dir": str(tmp_path / "code")}
    assert box.script("pwd", source=source).log.decode() == f"{tmp_path}/code\n"
    below = replace(box, directory=tmp_path / "other")
    assert below.script("pwd", source=source, workdir="sub").log.decode() == (
        f"{tmp_path}/code/sub\n"
    )


def test_a_workdir_that_is_not_there_fails_the_run_and_says_which(box: Box) -> None:
    ended = box.script("pwd", workdir="/no-such-directory").ended
    assert (ended["ok"], ended["reason"]) == (False, "StartFailed")
    assert ended["message"].startswith(
        "workdir `/no-such-directory` cannot be entered: No such file or directory"
    )


def test_a_result_and_metrics_come_through_files(box: Box) -> None:
    story = box.script(
        """echo '{"step": 3, "loss": 0.25, "acc": 1}' >> $FLEETCTL_METRICS;"""
        """echo '{"b": "\u00fc", "a": [1, null]}' > $FLEETCTL_RESULT"""
    )
    seen = story.parsed
    assert seen.result == '{"a":[1,null],"b":"ü"}'
    assert [(one.seq, one.step, one.name, one.value) for one in seen.metrics] == [
        (0, 3, "loss", 0.25),
        (1, 3, "acc", 1.0),
    ]


def test_metrics_are_told_while_a_command_goes_on(box: Box) -> None:
    text = """echo '{"step": 1, "loss": 0.5}' >> $FLEETCTL_METRICS; while :; do sleep 0.05; done"""
    attached = box.attach(box.order(argv=["sh", "-c", text]))
    story = attached.until(lambda story: bool(story.parsed.metrics))
    assert "ended" not in story.kinds
    box.stop(grace_s=0)
    attached.rest()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("printf '[1]'", "object", id="no-object"),
        pytest.param('printf \'{"a": "\\377"}\'', "UTF-8", id="not-utf-8"),
        pytest.param("printf '{\"a\": '", 'it begins `{"a":`', id="torn"),
        pytest.param("echo loss: 3", "begins `loss: 3`; it must be an object", id="no-json"),
        pytest.param("head -c 300000 /dev/zero | tr '\\0' 1", "volume", id="too-big"),
        pytest.param(":", "$FLEETCTL_RESULT is empty", id="empty"),
    ],
)
def test_a_result_that_cannot_be_kept_fails_the_run(box: Box, content: str, says: str) -> None:
    seen = box.script(f"{content} > $FLEETCTL_RESULT").parsed
    assert seen.ending is not None
    assert (seen.ending.ok, seen.ending.infrastructure) == (False, False)
    assert seen.ending.reason == "ResultInvalid"
    assert says in seen.ending.message
    assert seen.result is None


def test_a_result_with_nan_is_kept_with_null_and_said(box: Box) -> None:
    seen = box.script("""printf '{"loss": NaN, "b": [1e999]}' > $FLEETCTL_RESULT""").parsed
    assert seen.result == '{"b":[null],"loss":null}'
    assert seen.ending is not None
    assert seen.ending.ok
    assert seen.ending.message == (
        "result: `loss` is nan, `b[0]` is inf, which JSON cannot hold: kept as null"
    )


def test_lines_of_metrics_count_steps_and_what_is_none_is_said(box: Box) -> None:
    lines = (
        *('{"loss": 4}', "loss=3", '{"loss": 2}', '{"step": 9.0, "loss": NaN, "acc": 1}'),
        *('{"step": "x", "loss": 1}', '{"loss": true}'),
    )
    text = "cat >> $FLEETCTL_METRICS <<'E'\n" + "\n".join(lines) + "\nE\n"
    story = box.script(text)
    seen = story.parsed
    assert [(one.step, one.name, one.value) for one in seen.metrics] == [
        *((0, "loss", 4.0), (2, "loss", 2.0), (9, "loss", ANY), (9, "acc", 1.0)),
    ]
    assert isnan(seen.metrics[2].value)
    assert seen.ending is not None
    assert seen.ending.ok
    assert "line 2 of $FLEETCTL_METRICS is not recorded: it is `loss=3`" in seen.ending.message
    assert seen.ending.message.endswith("(3 lines in all)")
    if not box.posix:  # else the host reads the lines, and the log is the sandbox's
        assert b"fleetctl: line 5 of $FLEETCTL_METRICS is not recorded: its step" in story.log


def test_case_15_what_is_written_at_the_very_end_is_all_there(box: Box) -> None:
    """Golden case 15: more than a look reads."""
    text = (
        """seq 50000 | sed 's/.*/{"step": &, "loss": 0.5}/' > $FLEETCTL_METRICS; """
        """printf '{"step": 50001, "loss": 1}' >> $FLEETCTL_METRICS"""
    )
    seen = box.script(text).parsed
    assert [one.step for one in seen.metrics] == list(range(1, 50_002))
    assert len({one.seq for one in seen.metrics}) == 50_001


def test_a_result_that_is_a_link_is_not_followed(box: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text('{"key": 1}')
    seen = box.script(f"ln -s {tmp_path}/secret $FLEETCTL_RESULT").parsed
    assert seen.result is None


def test_a_failed_command_hands_in_no_result(box: Box) -> None:
    seen = box.script("echo '{\"a\": 1}' > $FLEETCTL_RESULT; exit 1").parsed
    assert seen.result is None
    assert seen.ending is not None
    assert seen.ending.reason == "ExitCode:1"


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 3, b"\xff\xfe\n", b"no end of line", b"\0\0\0", b"\n\n\n"]
)
def test_output_comes_byte_for_byte(box: Box, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data").write_bytes(data)
    assert box.script(f"cat {tmp_path}/data").log == data


def test_much_output_comes_whole(box: Box) -> None:
    story = box.script("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    assert story.log == b"".join(b"line %d\n" % i for i in range(20000))


def test_output_beyond_the_limit_is_dropped_and_the_rest_keeps_its_offsets(
    python_box: Box,
) -> None:
    text = "i=0; while [ $i -lt 9000 ]; do echo $i; i=$((i+1)); done"
    whole = b"".join(b"%d\n" % i for i in range(9000))
    story = python_box.script(text, log_bytes_max=8192)
    assert story.ended["ok"]
    again = python_box.attach().rest()
    for frames in (story.frames, again.frames):
        assert _agree(whole, frames)
    kept = sum(len(read_bytes(path)) for path in (python_box.directory / "runs").glob("*.log"))
    assert kept <= 8192


def test_a_log_that_is_too_long_begins_anew_while_the_run_goes_on(box: Box, tmp_path: Path) -> None:
    """Followed as it grows, it comes but for what was written as it began anew; the disk of the
    sandbox holds a part.
    """
    text = "i=0; while [ $i -lt 1200 ]; do echo line $i; i=$((i+1)); "
    text += f"if [ $((i % 150)) = 0 ]; then while [ ! -e {tmp_path}/go-$i ]; "
    text += "do echo seen $i; sleep 0.2; done; fi; done"
    attached = box.attach(box.order(argv=["sh", "-c", text], log_bytes_max=2048))
    for count in range(150, 1201, 150):  # whoever follows reads along
        attached.until(lambda story, seen=b"seen %d\n" % count: seen in story.log)
        (tmp_path / f"go-{count}").touch()
    story = attached.rest()
    assert story.ended["ok"]
    wanted = {b"line %d" % number for number in range(1200)}
    assert len(wanted & set(story.log.split(b"\n"))) > len(wanted) * 0.8
    places = [frame["at"] for frame in story.frames if frame["e"] == "log"]
    assert places == sorted(places)
    kept = sum(len(read_bytes(path)) for path in (box.directory / "runs").glob("*.log"))
    assert kept < sum(len(line) + 1 for line in wanted)


def _agree(whole: bytes, frames: list[dict[str, Any]]) -> bool:
    """Returns whether every frame of a log says what was written at its offset."""
    parts = [(frame["at"], bytes_of(frame)) for frame in frames if frame["e"] == "log"]
    return all(whole[at : at + len(data)] == data for at, data in parts)


def test_a_ray_cluster_stands_around_a_command(python_box: Box, tmp_path: Path) -> None:
    standin = Path(__file__).parents[2] / "training" / "standin"
    asks = "len(ray.nodes()), os.environ['RAY_ADDRESS'], ray.of_head('FLEETCTL_RESUME_STEP')"
    driver = f"import os, ray; ray.init(); print({asks})"
    saved = tmp_path / "ckpt" / "step-00000005"
    saved.mkdir(parents=True)
    (saved / "_COMPLETE.json").write_text('{"step": 5, "files": {}}')
    order = CheckpointOrder(str(saved.parent), "fleetctl", "Latest").order()
    checkpoint = {**order, "owner": "uid-1"}
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    ray = {
        "rank": 0, "addresses": ["127.0.0.1"], "port": port, "client_port": 0, "gpus": 0,
        "dashboard_port": None, "cpus": None, "memory": None, "temp": f"/tmp/ray-{port}",
    }  # fmt: skip
    env = {"PATH": f"{standin}:{os.environ['PATH']}", "PYTHONPATH": str(standin)}
    order = python_box.order(argv=["python3", "-c", f"{driver}; exit(7)"], env=env, ray=ray)
    order.update(checkpoint=checkpoint, library={"helper.py": ""})
    story = python_box.told(order)
    # Its workers know what is gone on from, too.
    assert (story.ended["reason"], story.log) == ("ExitCode:7", f"1 127.0.0.1:{port} 5\n".encode())
    assert not Path(ray["temp"]).exists()


def test_a_command_is_a_job_of_a_ray_cluster_that_is_there(python_box: Box) -> None:
    cluster = RayJobs(token="secret")
    try:
        order = python_box.order(argv=["sh", "-c", "echo $OWN $HOME; exit 7"], env={"OWN": "mine"})
        order["env"]["RAY_AUTH_TOKEN"] = "secret"
        order["ray_job"] = {"address": cluster.address, "names": ["OWN"], "unit": "u/0"}
        story = python_box.told(order)
        assert (story.ended["reason"], story.log) == ("ExitCode:7", b"mine\n")
        assert list(cluster.jobs) == [order["run"]]
    finally:
        cluster.close()


def test_long_parameters_come_as_files_and_none_of_an_earlier_run_stays(box: Box) -> None:
    text = "wc -c < $TASK_TEXT_FILE; echo ${TASK_TEXT-none}; env true; ls ${TASK_TEXT_FILE%/*}"
    for run, names in (("run-0", ("text", "more")), ("run-1", ("text",))):
        params = dict.fromkeys(names, "it's\n" * 40000)
        stays = {"reusable": True, "linger_s": 600.0}
        order = box.order(argv=["sh", "-c", text], run=run, params=params, **stays)
        attached = Attached(box.verb("attach", "--run", run, "--order", "-", piped=True))
        assert attached.process.stdin is not None
        attached.process.stdin.write(order_input(order, posix=box.posix))
        attached.process.stdin.close()
        told, size, *rest = attached.rest().log.decode().splitlines()
        assert "$TASK_TEXT_FILE" in told
        assert (int(size), rest[0]) == (200_000, "none")
        assert rest[1:] == sorted(f"TASK_{name.upper()}" for name in names)


def test_a_result_file_that_is_none_is_told_and_does_not_stay(box: Box) -> None:
    stays = {"reusable": True, "linger_s": 600.0}
    odd = box.script("mkdir $FLEETCTL_RESULT", **stays)
    assert odd.parsed.ending is not None
    assert odd.parsed.ending.ok
    assert b"fleetctl: the result in $FLEETCTL_RESULT is" in odd.log
    assert "the result in $FLEETCTL_RESULT is" in odd.parsed.ending.message
    well = box.script(r"""printf '\357\273\277{"a": 1}' > $FLEETCTL_RESULT""", run="run-1")
    assert (well.parsed.result, well.log) == ('{"a":1}', b"")
