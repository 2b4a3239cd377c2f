"""Tables of settings that a method refuses."""

from typing import Any


def wrong_settings(**values: list[Any]) -> list[tuple[dict[str, Any], str]]:
    """Return each value as the only setting, and the key that the error names."""
    return [({key: value}, f"method.{key}") for key, each in values.items() for value in each]
