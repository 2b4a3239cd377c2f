"""What can be said before a run: whether sites would take part, and what they would refuse."""
