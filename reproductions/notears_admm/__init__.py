"""The figures of Ng and Zhang (2022)."""
