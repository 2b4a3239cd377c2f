"""Uses a fitted neural graphical model: probabilities, samples and modes; without torch."""
