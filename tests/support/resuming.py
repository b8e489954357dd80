"""Trainings that are interrupted after every step, and go on from their checkpoint."""

from gilib.training import Checkpoint, Paused


def step_by_step(path, start, train):
    """Pause after every step, and begin anew until all is done; what began last, its result, the pauses."""
    pauses = 0
    while True:
        parts = start()
        try:
            return parts, train(*parts, checkpoint=Checkpoint(path, deadline=0.0)), pauses
        except Paused:
            pauses += 1
