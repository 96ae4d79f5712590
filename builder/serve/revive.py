"""Loads models again whose process died; gives up on one that keeps dying."""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable

from ..errors import ServeError

logger = logging.getLogger(__name__)
MAX_DEATHS = 3
WINDOW_S = 60.0


class Reviver:
    """Triton keeps calling a model ready whose process died, and fails every request to it.

    ``reload(model)`` loads it again and says whether that worked. ``clock`` gives seconds.
    """

    def __init__(self, reload: Callable[[str], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._reload = reload
        self._clock = clock
        self._deaths: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_DEATHS))

    def check(self, models: Iterable[str], alive: Collection[str]) -> None:
        """Revive every model that is not ``alive``.

        Raises ``ServeError`` where loading fails, or at the third death within a minute.
        """
        for model in models:
            if model not in alive:
                self._revive(model)

    def _revive(self, model: str) -> None:
        deaths, now = self._deaths[model], self._clock()
        deaths.append(now)
        if len(deaths) == MAX_DEATHS and now - deaths[0] < WINDOW_S:
            raise ServeError(
                model,
                expected="a process that stays alive",
                found=f"{MAX_DEATHS} deaths within {WINDOW_S:g} s",
                action="The server's log has more: start again with --log FILE",
            )
        logger.warning("%s: its process died, loading it again", model)
        if not self._reload(model):
            raise ServeError(model, expected="to be loaded again after its process died", found="a failure")
        logger.warning("%s: back", model)
