"""Tests of what sites share, for every FedLin method that estimates the residual variance."""
