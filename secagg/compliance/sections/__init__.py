"""The sections of the compliance report, each a function of the evidence."""
