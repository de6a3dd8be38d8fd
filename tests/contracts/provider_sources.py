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


class ProviderSources:
    @story
    async def test_all_that_a_directory_holds_comes_to_the_task(self, world: World) -> None:
        """Also links, empty directories and names that are no UTF-8, its own too."""
        code = odd_tree(world.directory / os.fsdecode(b"proj\xe9"))
        ref = await world.start(script(LISTED, source={"path": str(code)}))
        seen = await world.ended(ref)
        assert (seen.ok, await world.log(ref)) == (True, SEEN), seen.message


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
