"""Known attacks on what a run shows its coordinator, one file each."""
