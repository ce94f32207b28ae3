"""Progress and time left, on stderr."""

from __future__ import annotations

import sys
import time


class Progress:
    """Prints at most one line every few seconds (rewriting it on a terminal): done, rate, time left and a note."""

    def __init__(self, what: str, total: int, done: int = 0, every_s: float = 5.0) -> None:
        self._what, self._total, self._every = what, total, every_s
        self._first, self._done = done, done
        self._start = time.monotonic()
        self._shown = 0.0

    def update(self, done: int, note: str = "") -> None:
        self._done = done
        now = time.monotonic()
        if now - self._shown < self._every and done < self._total:
            return
        self._shown = now
        fresh = done - self._first
        left = (now - self._start) / fresh * (self._total - done) if fresh else float("nan")
        line = f"{self._what}: {done}/{self._total}, {_duration(left)} left{', ' + note if note else ''}"
        terminal = sys.stderr.isatty()
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _duration(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
