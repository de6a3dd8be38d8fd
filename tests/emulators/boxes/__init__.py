"""Boxes: the isolated places in which the processes of an emulated sandbox run.

    box = Box(directory, mounts={"/data": host_directory}, env={"KEY": "value"})
    await box.start()
    process = await box.spawn(["sh", "-c", "exit 7"], stdout=descriptor)
    code = await process.wait()
    await box.kill()

One nursery per event loop forks them (see nursery.py); all boxes end with the process that made it.
"""

from tests.emulators.boxes.box import Box, BoxError, base_path
from tests.emulators.boxes.nursery import Library, Nursery, nursery_here
from tests.emulators.boxes.process import BoxProcess

__all__ = ["Box", "BoxError", "BoxProcess", "Library", "Nursery", "base_path", "nursery_here"]
