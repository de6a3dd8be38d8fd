"""Streams a run's frames from within its supervisor, where that is also the command that began it.

Made by supervise.py. The supervisor must never wait for the reader: bytes that the pipe refuses now
are written when it takes more, and frames that are not due yet are in files alone.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote.story.frames import ALIVE, ALIVE_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleetctl.guest.remote.loop import Loop
    from fleetctl.guest.remote.story.frames import Story


class Telling:
    def __init__(
        self,
        loop: Loop,
        story: Story,
        handle: int,
    ) -> None:
        """handle: descriptor for the frames; ours from now on."""
        self._loop = loop
        self._story = story
        self._handle = handle
        self._rest = b""  # the unwritten rest of the last frames
        os.set_blocking(handle, False)
        loop.after("alive", ALIVE_S, self._send_alive)

    def look(self) -> None:
        """Writes new frames, as far as the pipe takes them now."""
        if self._handle < 0 or self._rest:
            return  # the loop calls when the pipe takes more
        news = self._story.next_frames()
        while news and self._write(news):
            news = self._story.next_frames()
        if self._story.over and not self._rest:
            self.close()

    def finish(self) -> None:
        """Writes all remaining frames, however long it takes: no other work is left."""
        if self._handle < 0:
            return
        os.set_blocking(self._handle, True)
        while self._rest:
            self._write_rest()
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
        self._handle = -1
        self._rest = b""

    def _write_rest(self) -> None:
        self._loop.forget(self._handle)
        rest = self._rest
        self._rest = b""
        if self._write(rest):
            self.look()

    def _write(self, data: bytes) -> bool:
        """Returns whether all was written; else the rest is to come, or the reader has gone."""
        self._loop.after("alive", ALIVE_S, self._send_alive)
        try:
            done = os.write(self._handle, data)
        except BlockingIOError:
            done = 0
        except OSError:
            self.close()
            return False
        if done < len(data):
            self._rest = data[done:]
            self._loop.watch_room(self._handle, self._write_rest)
        return not self._rest

    def _send_alive(self) -> None:
        if not self._rest:
            self._write(ALIVE)
