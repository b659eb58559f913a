"""Options that several commands have, and what they stand for: which cores, database, service or model."""
