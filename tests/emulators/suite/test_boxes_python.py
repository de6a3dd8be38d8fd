"""Python in a box: forked from the box's own interpreter, a program sees what it would see in one
that was started for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.boxes import Box, Library, Nursery
from tests.emulators.modal import basis

Body = Callable[[Box], Awaitable[Any]]
TELL_ALL = """
import sys
modules = sorted({*sys.modules} - {"os", "os.path", "posixpath", "genericpath", "stat", "_stat"})
modules.remove("_collections_abc") if "_collections_abc" in modules else None
given = dict(globals())
import os, signal
def told(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return file.read()
names = "executable _base_executable prefix exec_prefix base_prefix path argv orig_argv flags"
for name in (*names.split(), "dont_write_bytecode", "warnoptions", "meta_path"):
    print(name, getattr(sys, name))
print(modules, sorted(name for name in given if name != "modules"))
print(str(given["__loader__"]).partition(" object at ")[0])
print(told("cmdline"), told("environ"), told("comm"), dict(os.environ), os.getcwd())
print(sorted(os.listdir("/proc/self/fd")), os.getpgid(0) == os.getsid(0) == os.getpid())
print([signal.getsignal(number) for number in (2, 13, 15, 17, 25)], os.umask(0))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream, stream.errors, stream.line_buffering, stream.write_through, stream.isatty())
"""
FAILS = "def deep():\n    1 / 0\nprint('said', flush=True)\ndeep()"
LEAVES = "import atexit\natexit.register(print, 'at the end')\nopen('left', 'w').write('x' * 9)"
PROGRAMS = {
    "alone": ["python3", "-I", "-S", "-c", TELL_ALL, "a", "b"],
    "usual": ["python", "-c", TELL_ALL],
    "unbuffered": ["python", "-u", "-B", "-c", TELL_ALL],
    "a file": ["python3", "/root/program.py", "--flag"],
    "a file alone": ["python3", "-ISB", "/root/program.py"],
    "on stdin": ["python3", "-", "a"],
    "fails": ["python3", "-c", FAILS],
    "does not compile": ["python3", "-c", "x = ("],
    "exits": ["python3", "-c", "import sys; sys.exit('no')"],
    "exits with a code": ["python3", "-c", "raise SystemExit(7)"],
    "interrupts itself": ["python3", "-c", "import os; print('a'); os.kill(os.getpid(), 2)"],
    "leaves things to the end": ["python3", "-c", LEAVES],
    "a thread goes on": [
        "python3",
        "-c",
        "import threading as t; t.Timer(0.1, print, 'a').start()",
    ],
    "no such file": ["python3", "/root/nothing.py"],
    "a module": ["python3", "-m", "this"],
    "an option that is not known": ["python3", "-O", "-c", "import sys; print(sys.flags)"],
    "its version": ["python3", "-V"],
}


def in_box(tmp_path: Path, body: Body, *, warm: bool, plain: bool = False) -> Any:
    async def whole() -> Any:
        nursery = await Nursery.started(warm=warm, plain=plain)
        try:
            base = basis.lay_out(tmp_path / f"base-{warm}")
            env = {"PATH": basis.SYSTEM_PATH, "PYTHONPATH": "/srv/own", "WORD": "Ü"}
            box = Box(tmp_path / f"box-{warm}", base=[base], env=env, nursery=nursery)
            await box.start()
            (box.root / "root/program.py").write_text(TELL_ALL)
            return await asyncio.wait_for(body(box), 60)
        finally:
            nursery.stop()

    return asyncio.run(whole())


async def said(box: Box, argv: list[str], **options: Any) -> tuple[int, str]:
    told, tell = os.pipe()
    fed = os.open(box.root / "root/program.py", os.O_RDONLY) if argv[-2:] == ["-", "a"] else None
    process = await box.spawn(argv, stdin=fed, stdout=tell, stderr=tell, **options)
    os.close(tell)
    if fed is not None:
        os.close(fed)
    code = await process.wait()
    with os.fdopen(told, "rb") as stream:
        return code, stream.read().decode()


def test_a_program_sees_the_same_in_a_forked_interpreter_as_in_one_of_its_own(
    tmp_path: Path,
) -> None:
    async def all_of_them(box: Box) -> dict[str, tuple[int, str]]:
        return {name: await said(box, argv) for name, argv in PROGRAMS.items()}

    forked = in_box(tmp_path, all_of_them, warm=True)
    started = in_box(tmp_path, all_of_them, warm=False)
    for name in PROGRAMS:
        assert forked[name] == started[name], name
    for kind in ("True", "False"):
        assert (tmp_path / f"box-{kind}/root/root/left").read_text() == "x" * 9


@pytest.mark.parametrize(
    "variables", [{"PYTHONHASHSEED": "7"}, {"LC_ALL": "POSIX"}, {"PYTHONUTF8": "1"}], ids=str
)
def test_what_changes_the_start_of_an_interpreter_gets_one_of_its_own(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    ask = "import sys; print(hash('a') if sys.flags.hash_randomization == 0 else 0, sys.flags)"

    async def asked(box: Box) -> tuple[int, str]:
        return await said(box, ["python3", "-c", ask + "; print(sys.stdout)"], env=variables)

    assert in_box(tmp_path, asked, warm=True) == in_box(tmp_path, asked, warm=False)


def test_an_environment_over_the_same_interpreter_is_told_from_another_python(
    tmp_path: Path,
) -> None:
    async def ask(box: Box) -> list[tuple[int, str]]:
        real = f"{sys.base_prefix}/bin/python3"
        for name, home in (("own", f"{sys.base_prefix}/bin"), ("other", "/opt/other/bin")):
            (box.root / f"root/{name}/bin").mkdir(parents=True)
            (box.root / f"root/{name}/bin/python3").symlink_to(real)
            (box.root / f"root/{name}/pyvenv.cfg").write_text(f"home = {home}\n")
        show = "import sys; print(sys.prefix, sys.base_prefix, sys.path, sys._base_executable)"
        found = [f"/root/{name}/bin/python3" for name in ("own", "other")]
        return [await said(box, [path, "-c", show]) for path in (*found, real)]

    assert in_box(tmp_path, ask, warm=True) == in_box(tmp_path, ask, warm=False)


@pytest.mark.parametrize("plain", [False, True], ids=["isolated", "plain"])
def test_a_signal_right_after_the_start_reaches_the_program_and_its_children(
    tmp_path: Path, plain: bool
) -> None:
    code = "import os, time; os.fork(); time.sleep(600)"

    async def tale(box: Box) -> list[int]:
        codes = []
        for _ in range(20):
            process = await box.spawn(["python3", "-c", code], cwd="/")
            process.kill()
            codes.append(await process.wait())
        return codes

    codes = in_box(tmp_path, tale, warm=True, plain=plain)
    assert codes == [-signal.SIGKILL] * 20


def test_a_program_holds_no_descriptor_of_its_box(tmp_path: Path) -> None:
    """Whoever reads its output hears the end of it when it ends, whatever else runs."""
    sleeps = ["python3", "-c", "import time; time.sleep(600)"]

    async def tale(box: Box) -> None:
        told, tell = os.pipe()
        first = await box.spawn(["python3", "-c", "print('a')"], stdout=tell)
        second = await box.spawn(sleeps)
        os.close(tell)
        assert await first.wait() == 0
        with os.fdopen(told, "rb") as stream:
            assert stream.read() == b"a\n"
        assert second.returncode is None
        await box.kill()
        assert await second.wait() == -signal.SIGKILL

    in_box(tmp_path, tale, warm=True)


def test_a_library_is_imported_before_the_fork_and_found_where_boxes_have_it(
    tmp_path: Path,
) -> None:
    source, place = tmp_path / "library", "/srv/library"
    (source / "ours").mkdir(parents=True)
    (source / "ours/__init__.py").write_text("import os\nmade_by = os.environ['WORD'], os.getpid()")
    (source / "ours/part.py").write_text("word = 'a part'")
    show = f"import os, sys; sys.path.append({place!r}); import ours; from ours import part\n"
    show += "print(ours.made_by[0], ours.made_by[1] == os.getpid(), part.word, part.__file__)"

    async def tale() -> tuple[int, str]:
        library = Library("ours", source, place, (("WORD", "early"),))
        nursery = await Nursery.started(library=library)
        try:
            base = basis.lay_out(tmp_path / "base")
            env = {"PATH": basis.SYSTEM_PATH, "WORD": "late"}
            files = {place: source}
            box = Box(tmp_path / "box", base=[base], env=env, files=files, nursery=nursery)
            await box.start()
            return await said(box, ["python3", "-c", show])
        finally:
            nursery.stop()

    assert asyncio.run(tale()) == (0, f"early False a part {place}/ours/part.py\n")


def test_what_the_host_has_its_python_do_at_its_start_is_not_done_in_a_box(tmp_path: Path) -> None:
    show = "import glob, site; places = site.getsitepackages()\n"
    show += "print([open(one).read() for at in places for one in glob.glob(at + '/*.pth')])"

    async def ask(box: Box) -> str:
        code, text = await said(box, [f"{sys.base_prefix}/bin/python3", "-c", show])
        assert code == 0
        return text.strip(" []\n").replace("''", "").strip(" ,")

    assert in_box(tmp_path, ask, warm=False) == ""
