"""The files of tasks: each gets its own, whole and alone, at every provider."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from fleetctl.providers.contract.base import InputFile
from tests.contracts.provider_worlds import World, python, script, story

# Every byte, a line without an end, and texts that a shell could take for its own.
CONTENT = bytes(range(256)) + b"\n100% 'quoted' \"twice\" $HOME `id` \\n \\101\n" + b"\0\xffend"
LISTED = 'cat "$TASK_FILE" | od -An -v -tx1 | tr -d " \\n"; echo; ls "$(dirname "$TASK_FILE")"'


class ProviderInputs:
    @story
    async def test_a_task_gets_its_file_alone_byte_for_byte(self, world: World) -> None:
        one = input_file(world, "file.bin", CONTENT)
        order = world.order(script(LISTED), params=params_of(one), files=(one,))
        ref = await world.begin(order)
        seen = await world.ended(ref)
        log = (await world.log(ref)).decode()
        assert (seen.ok, log) == (True, f"{CONTENT.hex()}\nfile.bin\n"), seen.message

    @story
    async def test_a_python_task_gets_the_path_of_its_file(self, world: World) -> None:
        one = input_file(world, "file.txt", "grün\n".encode())
        code = (
            "import json, os\n"
            "known = json.load(open(os.environ['FLEETCTL_PARAMS']))\n"
            "same = file == params['file'] == os.environ['TASK_FILE'] == known['file']\n"
            "SUBMIT(text=open(file, encoding='utf-8').read(), same=same, name=file[-9:])"
        )
        order = world.order(python(code), params=params_of(one), files=(one,))
        seen = await world.ended(await world.begin(order))
        assert json.loads(seen.result or "{}") == {
            "text": "grün\n",
            "same": True,
            "name": "/file.txt",
        }

    @story
    async def test_a_task_of_several_files_gets_one_path_a_line(self, world: World) -> None:
        files = [
            input_file(world, "a/with space.txt", b"one\n"),
            input_file(world, "b/it's $HOME.txt", b"two\n"),
            input_file(world, "c/empty", b""),
        ]
        text = (
            'printf "%s\\n" "$TASK_FILES" | while IFS= read -r it; do'
            ' cat "$it"; echo "${it##*/}"; done'
        )
        order = world.order(script(text), params=params_of(*files, many=True), files=tuple(files))
        ref = await world.begin(order)
        seen = await world.ended(ref)
        log = (await world.log(ref)).decode()
        wanted = "one\nwith space.txt\ntwo\nit's $HOME.txt\nempty\n"
        assert (seen.ok, log) == (True, wanted), seen.message

    @story
    async def test_a_large_file_comes_whole(self, world: World) -> None:
        content = b"".join(sha256(b"%d" % number).digest() for number in range(180_000))
        one = input_file(world, "file.bin", content)
        code = "import hashlib; SUBMIT(digest=hashlib.sha256(open(file, 'rb').read()).hexdigest())"
        order = world.order(python(code), params=params_of(one), files=(one,))
        seen = await world.ended(await world.begin(order))
        assert json.loads(seen.result or "{}") == {"digest": one.digest}, seen.message

    @story
    async def test_the_next_task_of_a_sandbox_has_no_file_of_the_one_before(
        self, world: World
    ) -> None:
        text = 'cat "$TASK_FILE"; ls "$(dirname "$TASK_FILE")"'
        one, other = input_file(world, "one.txt", b"1\n"), input_file(world, "other.txt", b"2\n")
        first = world.order(
            script(f'{text}; echo edited >"$TASK_FILE"'),
            params=params_of(one),
            files=(one,),
            reusable=True,
        )
        ref = await world.begin(first)
        await world.ended(ref)
        second = world.order(
            script(text), run="run-1", sandbox="run-0", params=params_of(other), files=(other,)
        )
        after = await world.begin(second)
        await world.ended(after)
        assert await world.log(after) == b"2\nother.txt\n"
        assert one.path.read_bytes() == b"1\n"


def input_file(world: World, name: str, content: bytes) -> InputFile:
    digest = sha256(content).hexdigest()
    path = Path(world.directory, "contents", digest)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return InputFile(name, digest, path, len(content))


def params_of(*files: InputFile, many: bool = False) -> dict[str, object]:
    named = [{"name": it.name, "sha256": it.digest} for it in files]
    return {"files": named} if many else {"file": named[0]}
