"""The part of the provider suite about `outputs`: the files of an attempt that are kept with it."""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.guest.outputs.pack import BLOBS, pack_name
from fleetctl.providers.paths import jobs_dir
from fleetctl.providers.rundir.kept_outputs import SHARED, KeptOutputs, find_outputs
from tests.contracts.provider_worlds import World, eventually, python, script, story

MANY = int(os.environ.get("FLEETCTL_MANY_OUTPUTS", "1200"))
TOO_LARGE = 2 << 30  # in one file; more than any provider keeps
WRITES = """
import os
os.makedirs("out/deep er")
open("out/deep er/a file.txt", "w").write("a")
open("out/link", "w").close(); os.remove("out/link"); os.symlink("deep er/a file.txt", "out/link")
os.symlink("/etc/passwd", "out/away")
open(b"out/caf\\xe9", "wb").write(b"bytes")
open("model.pt", "wb").write(b"m" * 300_000)
open("again.pt", "wb").write(b"m" * 300_000)
open("scratch", "w").write("not asked for")
os.chmod("model.pt", 0o700)
SUBMIT(ok=True)
"""


class ProviderKeptFiles:
    """Mixed into ProviderSuite."""

    @story
    async def test_the_outputs_of_an_attempt_are_kept_with_it(self, world: World) -> None:
        ref = await world.start(python(WRITES, outputs=["out/**", "*.pt"]))
        seen = await world.ended(ref)
        assert seen.ok, seen
        assert "links that lead out" in seen.message
        assert _contents(world) == {
            "again.pt": b"m" * 300_000,
            "model.pt": b"m" * 300_000,
            "out/caf\udce9": b"bytes",
            "out/deep er/a file.txt": b"a",
            "out/link": b"a",
        }
        modes = {it.path: it.mode for it in _kept(world).files}
        assert (modes["model.pt"], modes["again.pt"]) == (0o700, 0o644)
        # Both are one content, which is there once.
        assert len(list((_runs(world) / BLOBS).iterdir())) == 1
        assert not list(_runs(world).glob("*.part")) + list(_runs(world).glob("*.new"))

    @story
    async def test_a_failed_attempt_keeps_its_outputs_and_a_pattern_can_take_out(
        self, world: World
    ) -> None:
        text = "mkdir out; echo a >out/a.log; echo b >out/b.txt; echo row 7 is bad; exit 3"
        ref = await world.start(script(text, outputs=["out", "!**/*.log", "none.bin"]))
        seen = await world.ended(ref)
        assert (seen.ok, seen.reason) == (False, "ExitCode:3")
        assert _contents(world) == {"out/b.txt": b"b\n"}
        # Its own last words are the reason that screens show.
        assert (await world.whole_log(ref), seen.message) == (b"row 7 is bad\n", "row 7 is bad")

    @story
    async def test_a_failed_attempt_says_why_and_not_what_it_left(self, world: World) -> None:
        ref = await world.start(script("echo data >left; echo row 7 is bad; exit 3"))
        seen = await world.ended(ref)
        assert (await world.whole_log(ref), seen.message) == (b"row 7 is bad\n", "row 7 is bad")

    @story
    async def test_a_pattern_that_no_file_matches_is_named(self, world: World) -> None:
        ref = await world.start(script("echo a >a", outputs=["a", "none.bin"]))
        assert (await world.ended(ref)).ok
        assert b"no file of this attempt matches `none.bin`" in await world.log(ref)

    @story
    async def test_a_file_that_is_too_large_fails_its_attempt_and_the_others_are_kept(
        self, world: World
    ) -> None:
        text = f"open('big', 'wb').truncate({TOO_LARGE})\nopen('small', 'w').write('s')"
        ref = await world.start(python(text, outputs=["*"]))
        seen = await world.ended(ref)
        assert (seen.ok, seen.infrastructure, seen.reason) == (False, False, "OutputsTooLarge")
        assert "`big` has 2.0 GiB, and at most" in seen.message
        assert "volume" in seen.message
        assert _contents(world) == {"small": b"s"}

    @story
    async def test_many_small_files_are_kept(self, world: World) -> None:
        text = (
            f"import os\nos.mkdir('o')\nfor n in range({MANY}): open(f'o/{{n}}', 'w').write(str(n))"
        )
        seen = await world.ended(await world.start(python(text, outputs=["o/"])))
        assert seen.ok, seen
        assert _contents(world) == {f"o/{n}": str(n).encode() for n in range(MANY)}

    @story
    async def test_what_nobody_keeps_is_said_in_the_log(self, world: World) -> None:
        ref = await world.start(python("open('a b', 'w').write('x' * 2048)\nprint('done')"))
        assert (await world.ended(ref)).ok
        *_, before, last = (await world.whole_log(ref)).decode().splitlines()
        assert before == "done"
        assert last.startswith("fleetctl: 1 file was not kept, 2.0 KiB: a b (")
        assert _find(world) is None

    @story
    async def test_an_attempt_that_is_lost_before_the_keeping_leaves_none(
        self, world: World
    ) -> None:
        text = "import time\nopen('model', 'w').write('m')\nprint('written', flush=True)\n"
        ref = await world.start(python(f"{text}time.sleep(600)", outputs=["model"]))
        await world.log_holds(ref, b"written")
        await world.lose(ref)
        await world.lost(ref)
        assert _find(world) is None
        again = await world.start(python(text, outputs=["model"]), run="run-1", attempt=2)
        assert (await world.ended(again)).ok
        assert _find(world) is None
        assert _contents(world, "run-1") == {"model": b"m"}

    @story
    async def test_outputs_that_were_written_under_another_controller_are_kept(
        self, world: World
    ) -> None:
        text = (
            "import time\nopen('my model', 'wb').write(b'm' * 300_000)\n"
            "print('written', flush=True)\ntime.sleep(1)"
        )
        order = world.order(python(text, outputs=["my *"]))
        ref = await world.begin(order)
        await world.log_holds(ref, b"written")
        await world.provider.close()
        world.provider = world.again()
        assert await world.begin(order) == ref
        seen = await world.ended(ref)
        assert seen.ok, seen
        assert _contents(world) == {"my model": b"m" * 300_000}

    @story
    async def test_objects_share_a_content_until_the_last_of_them_goes(self, world: World) -> None:
        text = "open('model.pt', 'wb').write(b'm' * 300_000)"
        first = await world.ended(await world.start(python(text, outputs=["*.pt"])))
        order = world.order(python(text, outputs=["*.pt"]), run="run-1", uid="uid-2")
        second = await world.ended(await world.begin(order))
        assert (first.ok, second.ok) == (True, True), (first, second)
        jobs = _runs(world).parents[1]
        found = [it.stat() for it in jobs.glob(f"*/runs/{BLOBS}/*")]
        assert len(found) == 2
        assert len({it.st_ino for it in found}) == 1
        await world.provider.remove_scratch("uid-1", keep_logs=False)
        kept = find_outputs(jobs / "uid-2" / "runs", "run-1")
        assert kept is not None
        assert b"".join(kept.contents(kept.files[0])) == b"m" * 300_000
        await world.provider.remove_scratch("uid-2", keep_logs=False)
        assert not list((jobs.parent / SHARED).glob("*/*"))

    @story
    async def test_outputs_stay_with_the_logs_and_go_with_their_object(self, world: World) -> None:
        seen = await world.ended(await world.start(script("echo a >a", outputs=["a"])))
        assert seen.ok, seen

        async def freed(*, keep_logs: bool) -> None:
            await world.provider.remove_scratch("uid-1", keep_logs=keep_logs)

        await freed(keep_logs=True)
        assert _contents(world) == {"a": b"a\n"}

        async def gone() -> bool:
            await freed(keep_logs=False)
            return not _runs(world).exists()

        await eventually(gone, "its files are gone")


def _runs(world: World) -> Path:
    home = world.directory / "home"
    found = [it for it in home.glob("*/jobs/uid-1") if it.is_dir()]
    name = found[0].parts[-3] if found else "local"
    return jobs_dir(home, name) / "uid-1" / "runs"


def _find(world: World, run: str = "run-0") -> KeptOutputs | None:
    return find_outputs(_runs(world), run)


def _kept(world: World, run: str = "run-0") -> KeptOutputs:
    kept = _find(world, run)
    assert kept is not None, f"there is no {pack_name(run)}"
    return kept


def _contents(world: World, run: str = "run-0") -> dict[str, bytes]:
    kept = _kept(world, run)
    return {it.path: b"".join(kept.contents(it)) for it in kept.files}
