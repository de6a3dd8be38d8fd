"""Tells a run's story from within its supervisor, where that is also the command that began it.

Made by supervise.py. The supervisor must never wait for who reads: what the pipe does not take now
is told when it takes more, and what has not been told yet stands in files alone.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote.story.frames import ALIVE, ALIVE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleetctl.guest.remote.loop import Loop
    from fleetctl.guest.remote.story.frames import Story


class Telling:
    def __init__(self, loop: Loop, story: Story, handle: int) -> None:
        """handle: where the frames go; ours from now on."""
        self._loop, self._story, self._handle = loop, story, handle
        self._rest = b""  # of what was begun to be told
        os.set_blocking(handle, False)
        loop.after("alive", ALIVE_S, self._say_alive)

    def look(self) -> None:
        """Tell what is new, as far as it is taken now."""
        if self._handle < 0 or self._rest:
            return  # the loop says when more is taken
        news = self._story.news()
        while news and self._write(news):
            news = self._story.news()
        if self._story.over and not self._rest:
            self.close()

    def finish(self) -> None:
        """Tell all that is left, however long it takes: nothing else is to be done any more."""
        if self._handle < 0:
            return
        os.set_blocking(self._handle, True)
        while self._rest:
            self._go_on()
        self.look()
        self.close()

    def close(self) -> None:
        if self._handle < 0:
            return
        if self._rest:
            self._loop.forget(self._handle)
        self._loop.cancel("alive")
        self._story.close()
        os.close(self._handle)
        self._handle, self._rest = -1, b""

    def _go_on(self) -> None:
        self._loop.forget(self._handle)
        rest, self._rest = self._rest, b""
        if self._write(rest):
            self.look()

    def _write(self, data: bytes) -> bool:
        """Whether all of it was taken; else the rest is to come, or nobody reads any more."""
        self._loop.after("alive", ALIVE_S, self._say_alive)
        try:
            done = os.write(self._handle, data)
        except BlockingIOError:
            done = 0
        except OSError:
            self.close()
            return False
        if done < len(data):
            self._rest = data[done:]
            self._loop.watch_room(self._handle, self._go_on)
        return not self._rest

    def _say_alive(self) -> None:
        if not self._rest:
            self._write(ALIVE)
