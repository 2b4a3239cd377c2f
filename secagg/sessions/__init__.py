"""One session: coordinator, parties, journal and engines."""
