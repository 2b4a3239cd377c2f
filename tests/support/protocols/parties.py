"""Four parties with keys, for tests of frames, identities, parties and coordinators."""

from dataclasses import dataclass, field

from secagg.core.identity import Identity, Role, Roster
from secagg.core.randomness import RandomBytes, replayable_random

ROLES = {
    "alice": Role.SITE,
    "bob": Role.SITE,
    "coordinator": Role.COORDINATOR,
    "holder": Role.AGGREGATOR,
}


@dataclass
class Parties:
    """Keys of ROLES and their roster; `session` names one session of theirs."""

    random: RandomBytes = field(default_factory=lambda: replayable_random(11))

    def __post_init__(self) -> None:
        self.keys = {
            name: Identity.generate(name, role, self.random) for name, role in ROLES.items()
        }
        self.roster = Roster({name: keys.public for name, keys in self.keys.items()})
        self.session = self.roster.session(bytes(16), b"job")
