"""A source with all that a directory can hold, and what a task finds of it at every provider."""

from __future__ import annotations

import os
from pathlib import Path

from tests.contracts.provider_worlds import World, script, story

# Of each entry its sort, its name as bytes, and where a link leads; then that links lead on.
LISTED = """\
find . -mindepth 1 | LC_ALL=C sort | while IFS= read -r it; do
    if [ -L "$it" ]; then printf 'link %s -> %s\\n' "$it" "$(readlink "$it")"
    elif [ -d "$it" ]; then printf 'directory %s\\n' "$it"
    elif [ -x "$it" ]; then printf 'program %s\\n' "$it"
    else printf 'file %s\\n' "$it"; fi
done
echo y > latest/new.txt && cat data/new.txt
"""
SEEN = b"""\
directory ./bin
program ./bin/go
link ./bin/up -> ../data/a.txt
link ./dangling -> nowhere
directory ./data
file ./data/a.txt
directory ./empty
file ./l1\xe9.txt
link ./latest -> data
directory ./odd\xe9
file ./odd\xe9/in.txt
y
"""


# A task finds the source as it is, and leaves it and its home as different as it can.
SPOIL = """\
find . -type f ! -name "*.tmp" -exec cat {} + | cksum; find . | LC_ALL=C sort | cksum; ls -A "$HOME"
before=$(stat -c %y data/a.txt 2>/dev/null || echo 2001-01-01)
printf y >data/a.txt; touch -d "$before" data/a.txt 2>/dev/null
rm -rf empty; mkdir new; echo more >new/file; mv bin bin2; ln -sf /etc latest; echo x >"$HOME/left"
chmod 700 data; true
"""


class ProviderSources:
    @story
    async def test_all_that_a_directory_holds_comes_to_the_task(self, world: World) -> None:
        """Also links, empty directories and names that are no UTF-8, its own too."""
        code = odd_tree(world.directory / os.fsdecode(b"proj\xe9"))
        ref = await world.start(script(LISTED, source={"path": str(code)}))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, SEEN), seen.message

    @story
    async def test_a_task_finds_the_source_as_it_is_whatever_the_one_before_did(
        self, world: World
    ) -> None:
        code = odd_tree(world.directory / "proj")
        seen = []
        for number in range(4):
            template = script(SPOIL, source={"path": str(code)})
            ref = await world.start(template, run=f"run-{number}", index=number)
            ended = await world.ended(ref)
            assert ended.ok, ended.message
            seen.append(await world.log(ref))
        assert seen == seen[:1] * 4
        assert (code / "data/a.txt").read_text() == "x"

    @story
    async def test_a_task_has_no_metrics_of_the_one_before_in_its_copy_of_the_source(
        self, world: World
    ) -> None:
        code = odd_tree(world.directory / "proj")
        fields = {"source": {"path": str(code)}, "metrics": {"from": "jsonl", "path": "m.jsonl"}}
        first = script('echo \'{"step": 1, "loss": 0.5}\' >m.jsonl', **fields)
        seen = await world.run(first, run="run-0")
        assert [(it.name, it.value) for it in seen.metrics] == [("loss", 0.5)], seen.message
        after = await world.run(script("sleep 3", **fields), run="run-1", template_hash="hash-1")
        assert after.metrics == ()


def odd_tree(place: Path) -> Path:
    odd = map(os.fsdecode, (b"l1\xe9.txt", b"odd\xe9/in.txt"))
    for name in ("data/a.txt", "bin/go", *odd):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    (place / "bin/go").chmod(0o755)
    (place / "empty").mkdir()
    (place / "latest").symlink_to("data")
    (place / "dangling").symlink_to("nowhere")
    (place / "bin" / "up").symlink_to("../data/a.txt")
    return place
