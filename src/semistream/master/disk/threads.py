"""The threads of a disk: made when first needed, and again in a forked process, which inherits none of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

R = TypeVar("R")


class ReaderThreads:
    """A thread pool that costs nothing until it is used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    def run(self, task: Callable[..., R], parts: Iterable[tuple[object, ...]]) -> list[R]:
        """Run `task` once per part, the first of them in the calling thread; results in order.

        Returns or raises only when no part is running any more: nobody may write into a buffer that its owner believes
        to be his again.
        """
        own, *others = parts
        futures: list[Future[R]] = []
        try:
            if others:
                pool = self._ready()
                futures.extend(pool.submit(task, *part) for part in others)
            return [task(*own), *(future.result() for future in futures)]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown()

    def _ready(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._process != os.getpid():
                self._process = os.getpid()
                self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="semistream-read")
            return self._pool
