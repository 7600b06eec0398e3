"""The JSON lines of a running process, as they come."""

import json
import queue
import subprocess
import threading


class ProcessLines:
    """Reads the lines of ``process`` in a thread of its own."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process, self._lines = process, queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def next(self, seconds: float) -> dict:
        """The next line; raises queue.Empty if none comes within so many ``seconds``."""
        return self._lines.get(timeout=seconds)

    def so_far(self) -> list[dict]:
        """The lines of a process that has ended, from the next one on."""
        found = list[dict]()
        while not self._lines.empty():
            found.append(self._lines.get())
        return found
