"""What a finished run of a neural network answers."""
