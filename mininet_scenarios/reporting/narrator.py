"""Progress of a run, with the time left; on a terminal or without a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_REFRESH_S: Final = 0.25
_BELIEF: Final = 0.05
"""Weight of the expected times beside measured times, as a share of all phases."""
_NEVER_QUITE: Final = 0.99
"""Greatest share of a phase's part of the bar before the phase ends."""


class Narrator(Protocol):
    """Interface by which a scenario reports progress."""

    def phase(self, title: str, expected_s: float) -> AbstractContextManager[None]:
        """A phase of the scenario that should take ``expected_s``."""

    def say(self, text: str) -> None:
        """Print a line permanently."""


class ConsoleNarrator:
    """A progress bar with the time left on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, total_s: float) -> None:
        self._console = console
        self._total_s = total_s
        self._done_s = 0.0
        """Expected time of the past phases."""
        self._took_s = 0.0
        self._phase: tuple[str, float, float] | None = None
        self._began_s = time.monotonic()
        self._progress: Progress | None = None
        self.refreshed = threading.Event()
        """Set once the bar has been drawn with its first phase."""
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.add_task("starting", total=self._total_s, left="")
            self._progress.start()
            self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def phase(self, title: str, expected_s: float) -> Iterator[None]:
        self._phase = (title, time.monotonic(), expected_s)
        if self._progress is None:
            self.say(f"{title} (about {expected_s:.0f} s, {self._remaining()})")
        try:
            yield
        finally:
            self._took_s += time.monotonic() - self._phase[1]
            self._done_s += expected_s
            self._phase = None

    def say(self, text: str) -> None:
        elapsed_s = time.monotonic() - self._began_s
        self._console.print(f"[dim]{elapsed_s:6.1f} s[/dim]  {escape(text)}", highlight=False)

    def _position_s(self) -> float:
        """Expected time of the finished work."""
        if self._phase is None:
            return self._done_s
        _, began_s, expected_s = self._phase
        took_s = (time.monotonic() - began_s) / self._pace
        return self._done_s + min(took_s, expected_s * _NEVER_QUITE)

    @property
    def _pace(self) -> float:
        """Time of phases as a multiple of the expected time."""
        believed_s = _BELIEF * self._total_s
        if self._done_s + believed_s <= 0:
            return 1.0
        return (self._took_s + believed_s) / (self._done_s + believed_s)

    def _remaining(self) -> str:
        remaining_s = max(0.0, self._total_s - self._position_s()) * self._pace
        minutes, seconds = divmod(round(remaining_s), 60)
        return f"{minutes} min {seconds:02d} s left"

    def _tick(self) -> None:
        while not self._stop.wait(_REFRESH_S):
            if self._progress is not None:
                phase = self._phase
                self._progress.update(
                    self._progress.task_ids[0],
                    completed=self._position_s(),
                    description=phase[0] if phase else "between runs",
                    left=self._remaining(),
                )
                self._progress.refresh()
                if phase is not None:
                    self.refreshed.set()
