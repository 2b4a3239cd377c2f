"""A site's own rules, and the guard that applies them."""
