"""The cost of protocols, sessions and engines."""
