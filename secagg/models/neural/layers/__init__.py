"""Which layers and operations a module may have: without noise, and with it."""
