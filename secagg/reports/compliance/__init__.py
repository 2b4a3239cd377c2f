"""The page of a compliance report (`secagg report`)."""
