"""Attacks on FedLin: HM1 and HM2."""
