"""The experiments of FedNGM (Chajewska and Shrivastava, 2023)."""
