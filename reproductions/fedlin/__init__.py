"""The tables and figure of Yue et al. (2022)."""
