"""The runner: experiments, groups of their configurations, the work on a group, and records."""
