"""`image.requirements` of a repository: the lines of the file at the commit that an apply found are
stored as entries of `image.pip`; so its content counts, and not its name. Called by sources.py,
after the commit is known.
"""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.manifest.files.requirements import RequirementsError, read_requirements
from fleetctl.manifest.problems import path_text
from fleetctl.manifest.rules import check_text, split_doubts
from fleetctl.providers.sources import git, text_checkout
from fleetctl.specs.blocks.template import GitSource, Image, PipIndex
from fleetctl.specs.values.packages import LOCAL, split_options, with_options

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

READ_S = 30.0  # for a remote to hand over some texts; an apply waits for it
FOUND_MAX = 1000
HINT = "list them in `image.pip`, or name a copy beside the manifest there: `-r requirements.txt`"


class FileRequirements:
    """The lines of files at commits; a commit never changes, so each is read once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[str, ...]] = {}

    async def read_into(self, manifest: Manifest, commit: str) -> Manifest:
        """Returns the manifest with the requirements of its repository. commit: empty where
        unknown. Raises UsageError.
        """
        holder: Any = getattr(manifest.spec, "template", None) or manifest.spec
        image: Image | None = getattr(holder, "image", None)
        if image is None or image.requirements is None:
            return manifest
        where = f"{manifest.path}:{manifest.line}: {manifest.key}: image.requirements"
        try:
            listed = await self._listed(holder.source.git, commit, image.requirements)
        except RequirementsError as error:
            place = f"`{error.file}`" + (f", line {error.line}" if error.line else "")
            raise UsageError(f"{where}: {place}: {error}", hint=HINT) from error
        except Refused as error:
            raise UsageError(f"{where}: {error}", hint=error.hint) from error
        except (Unavailable, TimeoutError) as error:
            problem = str(error) or f"the repository did not answer within {READ_S:g} s"
            raise UsageError(f"{where} cannot be read from here: {problem}", hint=HINT) from error
        packages, found = split_options([*listed])
        update: dict[str, Any] = {"pip": (*image.pip, *packages), "requirements": None}
        if found:
            given = image.pip_index
            before = None if given is None else given.model_dump(by_alias=True, exclude_none=True)
            try:
                update["pip_index"] = PipIndex.model_validate(with_options(before, found))
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise UsageError(f"{where}: `{image.requirements}`: {why}", hint=HINT) from error
        whole = image.model_copy(update=update)
        changed = holder.model_copy(update={"image": whole})
        if holder is not manifest.spec:
            changed = manifest.spec.model_copy(update={"template": changed})
        for finding in split_doubts(check_text(changed))[0]:
            problem = path_text(finding.subject) + finding.what
            raise UsageError(f"{where}: {problem}", hint=finding.fix)
        return replace(manifest, spec=changed)

    async def _listed(
        self,
        source: GitSource,
        commit: str,
        file: str,
    ) -> tuple[str, ...]:
        if not commit:
            ref = f"`{source.ref}`" if source.ref else "the default branch"
            raise Unavailable(f"{git.redact_url(source.url)} does not report what {ref} is now")
        file = posixpath.join(source.path or "", file)
        key = (source.url, commit, file)
        if key not in self._found:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            with TemporaryDirectory(prefix="fleetctl-") as directory:
                async with asyncio.timeout(READ_S):
                    await text_checkout.check_out(source, commit, file, Path(directory))
                listed = read_requirements(file, directory, [], within=directory)
            for entry in listed:
                if LOCAL.fullmatch(entry):  # a repository must not reach for files of this machine
                    raise RequirementsError(f"`{entry}` is a path of this machine", file=file)
            self._found[key] = tuple(listed)
        return self._found[key]
