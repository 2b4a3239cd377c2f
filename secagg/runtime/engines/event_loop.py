"""An event loop that code without one drives: until an end, a deadline or a signal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any


def run_to_end(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
    """Run it to its end. What a signal's handler raises meanwhile ends it, as a cancellation.

    Raised anywhere in asyncio's own code, it could leave the loop unfit for the clean-up.
    """
    raised: list[BaseException] = []

    def at_signal(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:  # whatever it is, it is raised below
            raised.append(error)
            loop.call_soon_threadsafe(task.cancel)

    task = loop.create_task(coroutine)
    handlers = _handlers()
    try:
        for number in handlers:
            signal.signal(number, at_signal)
        return loop.run_until_complete(task)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if raised:
            raise raised[0]


def _handlers() -> dict[int, Any]:
    """Return the handlers, by signal, that may end a run by raising something."""
    if threading.current_thread() is not threading.main_thread():
        return {}  # only that thread runs handlers
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    return {number: handler for number, handler in found.items() if callable(handler)}


async def results_until(waited: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return what came, by name, before the time was up; the rest is cancelled."""
    tasks = {name: asyncio.ensure_future(each) for name, each in waited.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds)
    finally:
        for task in tasks.values():
            task.cancel()  # which does nothing to those that are done
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    came = {n: task.result() for n, task in tasks.items() if not task.cancelled()}
    return {name: result for name, result in came.items() if result is not None}
