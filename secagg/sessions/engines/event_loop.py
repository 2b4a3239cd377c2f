"""Run an event loop from code without one, until its task ends, a deadline or a signal."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any


def run_to_end(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
    """Run the coroutine to its end. An exception in a signal handler cancels it and is raised here.

    An exception that a signal raises inside asyncio's own code could leave the loop unusable for
    the clean-up.
    """
    raised: list[BaseException] = []

    def at_signal(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:  # raised again below
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
    """Return the handlers, by signal, that may end a run with an exception."""
    if threading.current_thread() is not threading.main_thread():
        return {}  # only the main thread runs handlers
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


async def results_until(awaitables: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the results that are ready in time, by name, without None; cancel the rest."""
    tasks = {name: asyncio.ensure_future(each) for name, each in awaitables.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=seconds)
    finally:
        for task in tasks.values():
            task.cancel()  # no effect on a finished task
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    results = {n: task.result() for n, task in tasks.items() if not task.cancelled()}
    return {name: result for name, result in results.items() if result is not None}
