"""FedLin with a full covariance between sites: `fedlin_full`."""
