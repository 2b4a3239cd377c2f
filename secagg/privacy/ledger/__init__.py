"""What was released of a data set, on disk before it leaves."""
