"""The home of a party that runs on a computer of its own: its keys, records, rules, ledgers."""
