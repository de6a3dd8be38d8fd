"""TypeScript for `code_run`: node strips the types itself when it can (22.6 or newer).

Older ones get JavaScript that a small compiler made of the code; it is installed with npm when it
is first needed, below the emulator's own directory.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
from pathlib import Path

from .errors import ToolboxError

COMPILER = "sucrase@3.35.0"
STRIPS_SINCE = (22, 6)
_TRANSFORM = """
const {transform} = require('sucrase');
const code = require('fs').readFileSync(0, 'utf8');
process.stdout.write(transform(code, {transforms: ['typescript', 'imports']}).code);
"""
_installing = asyncio.Lock()


@functools.cache
def node_strips_types() -> bool:
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    version = said.stdout.strip().removeprefix("v").split(".")
    return said.returncode == 0 and tuple(map(int, version[:2])) >= STRIPS_SINCE


async def compiled(code: str, directory: Path) -> str:
    """JavaScript that does what `code` does. Raises ToolboxError with the compiler's words."""
    place = directory / "typescript"
    async with _installing:
        if not (place / "node_modules" / "sucrase").is_dir():
            place.mkdir(parents=True, exist_ok=True)
            words = ("npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), COMPILER)
            await _asked(words, place)
    return await _asked(("node", "-e", _TRANSFORM), place, code)


async def _asked(words: tuple[str, ...], directory: Path, text: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=directory,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, problems = await process.communicate(text.encode())
    if process.returncode:
        raise ToolboxError(500, problems.decode(errors="replace")[-2000:])
    return output.decode()
