"""A site's policy, which is its rules for releases, and the checks that apply the rules."""
