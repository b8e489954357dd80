"""Trainings that are interrupted after every step, and go on from their checkpoint."""

from gilib.training import Checkpoint, Paused


def step_by_step(path, start, train):
    """Begin anew until the training is done: `train(*start(), checkpoint=...)` pauses after every step.

    Returns what was started last, the result of its training, and the number of pauses.
    """
    pauses = 0
    while True:
        parts = start()
        try:
            return parts, train(*parts, checkpoint=Checkpoint(path, deadline=0.0)), pauses
        except Paused:
            pauses += 1
