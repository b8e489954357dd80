"""The runner: what an experiment is, groups of its configurations, the work on them, and their records."""
