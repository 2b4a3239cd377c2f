"""The tables of `sparse_bayes`: fits of real records set side by side.

Every number of a sampler stands beside its Monte Carlo error or effective sample size, and every
probability of inclusion (PIP) beside the prior that it is of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from secagg.models.posterior import LEAST_ESS, MOST_R_HAT
from secagg.models.sparse_markov import discoveries
from secagg.reproductions.network_chart import network_chart
from secagg.reproductions.plain import Numbers
from secagg.reproductions.sparse import network
from secagg.reproductions.sparse.sampled import CHAINS
from secagg.reproductions.studies import Table, Told
