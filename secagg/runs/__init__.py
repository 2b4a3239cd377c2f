"""What a user does with a job: plan, run, simulate, resume, adapt, keep budgets."""
