"""All parties in one process: the default engine, for simulation, tests and audits.

It keeps a transcript of every delivered frame, by sender and recipient. A test can pass a function
`tamper`, which drops, changes, repeats, delays or reorders frames. The full error of a site, which
is never sent, is in `errors`: in a simulation, one process has all the data anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from secagg.contracts import Result
from secagg.core.frames import Delivery, Recorder, peek_header, record_nothing
from secagg.core.threads import single_threaded_blas
from secagg.errors import SecaggError
from secagg.sessions.party import Party

Tamper = Callable[[str, str, bytes], Sequence[bytes]]
"""tamper(sender, recipient, frame) returns the frames that arrive instead; none: it is lost."""


@dataclass
class MemoryEngine:
    """Delivers frames between `coordinator` and `parties`, in a fixed order."""

    name: ClassVar[str] = "memory"

    coordinator: str
    parties: Mapping[str, Party]
    tamper: Tamper | None = None
    states: dict[str, bytes] = field(default_factory=dict, repr=False)  # hold private keys
    transcript: list[Delivery] = field(default_factory=list)
    record: Recorder = record_nothing
    errors: dict[str, SecaggError] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """processor time of each party"""
    site_results: dict[str, Result] = field(default_factory=dict)
    """each site's own result, if the method has one"""

    @single_threaded_blas()  # once for all parties, which each ask for it
    def exchange(self, requests: Mapping[str, bytes]) -> Sequence[bytes]:
        """Deliver each request, run the party, deliver its reply."""
        replies: list[bytes] = []
        for name, request in requests.items():
            for arrived in self._deliver(self.coordinator, name, request):
                party = self.parties[name]
                began = time.process_time()
                handled = party.handle(arrived, self.states.get(name) or party.first_state())
                spent = time.process_time() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + spent
                self.states[name] = handled.state
                if handled.site_result is not None:
                    self.site_results[name] = handled.site_result
                if handled.error is not None:
                    self.errors[name] = handled.error
                replies += self._deliver(name, self.coordinator, handled.reply)
        return replies

    def _deliver(self, sender: str, recipient: str, frame: bytes) -> Sequence[bytes]:
        round_, phase = peek_header(frame)
        arrived = [frame] if self.tamper is None else self.tamper(sender, recipient, frame)
        for data in arrived:
            self.transcript.append(Delivery(round_, phase, sender, recipient, len(data)))
            self.record(self.transcript[-1], data)
        return arrived
