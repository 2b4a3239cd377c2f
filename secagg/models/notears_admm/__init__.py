"""NOTEARS-ADMM (Ng and Zhang 2022)."""
