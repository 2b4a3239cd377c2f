"""Regressions under noise, by one step from a first estimate (docs/math/one-step.md)."""
