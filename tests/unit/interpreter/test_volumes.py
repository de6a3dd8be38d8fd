"""What code keeps on a volume, and what the host puts there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl import Interpreter, InterpreterError
from tests.interpreters import Place
from tests.unit.interpreter.conftest import Make


def test_files_on_a_volume_outlive_the_sandbox(make: Make, place: Place) -> None:
    one = make(volume_name="shared")
    assert one.execute("print(save_to_volume('results/a.txt', 'x'))") == "/data/results/a.txt\n"
    one.execute("open('/data/b.txt', 'w').write('y')")
    one.shutdown()
    assert place.read_volume("shared", "results/a.txt") == "x"
    two = make(volume_name="shared", volume_mount_path="/mnt/other")
    said = two.execute("print(load_from_volume('results/a.txt'), open('/mnt/other/b.txt').read())")
    assert said == "x y\n"


def test_two_sandboxes_see_each_others_files(make: Make) -> None:
    one, two = make(volume_name="shared"), make(volume_name="shared")
    two.start()
    one.execute("save_to_volume('a', '1')")
    one.commit()
    two.reload()
    assert two.execute("print(load_from_volume('a'))") == "1\n"


def test_commit_and_reload_without_a_volume_do_nothing(modal: Interpreter) -> None:
    modal.commit()
    modal.reload()
    modal.start()
    modal.commit()
    modal.reload()


def test_the_helpers_stay_on_the_volume(make: Make) -> None:
    said = make(volume_name="v").execute(
        "print(save_to_volume('../x', 'y'), load_from_volume('/etc/passwd'))\n"
        "print(workspace_write('n/a', '1'), workspace_append('n/a', '2'), workspace_read('n/a'),"
        " workspace_list(), workspace_read('../a'), load_from_volume('none'))"
    )
    assert said == (
        "[error: ../x is outside of /data] [error: /etc/passwd is outside of /data]\n"
        "/data/workspace/n/a /data/workspace/n/a 12 ['n/a']"
        " [error: ../a is outside of /data/workspace] [file not found: /data/none]\n"
    )


def test_local_files_are_put_on_the_volume_unless_they_are_there(
    make: Make, place: Place, tmp_path: Path
) -> None:
    top = tmp_path / "many"
    (top / "below").mkdir(parents=True)
    (top / "a.txt").write_text("a")
    (top / "below" / "b.bin").write_bytes(bytes(range(256)) * 8000)
    (top / "empty").write_text("")
    interpreter = make(volume_name="v")
    written = interpreter.upload_to_volume({str(top): "in/many"}, {str(top / "a.txt"): "/one.txt"})
    assert sorted(written) == ["/one.txt", "in/many"]
    code = (
        "data = open('/data/in/many/below/b.bin', 'rb').read()\n"
        "import os\n"
        "SUBMIT(whole=data == bytes(range(256)) * 8000, one=open('/data/one.txt').read(),"
        " names=sorted(os.listdir('/data/in/many') + os.listdir('/data/in/many/below')))"
    )
    assert interpreter.execute(code).output == {
        "whole": True,
        "one": "a",
        "names": ["a.txt", "b.bin", "below", "empty"],
    }
    (top / "a.txt").write_text("changed")
    again = interpreter.upload_to_volume({str(top): "in/many"}, {str(top / "a.txt"): "two.txt"})
    assert again == ("two.txt",)
    assert place.read_volume("v", "in/many/a.txt") == "a"


def test_uploading_without_a_volume_or_without_the_file_is_an_error(
    make: Make, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="pass volume_name"):
        make().upload_to_volume({}, {})
    interpreter = make(volume_name="v")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        interpreter.upload_to_volume(local_files={str(tmp_path / "none"): "x"})
    (tmp_path / "a").write_text("a")
    with pytest.raises(InterpreterError, match="is not a path inside of the volume"):
        interpreter.upload_to_volume(local_files={str(tmp_path / "a"): "../../x"})
