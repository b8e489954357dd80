"""The bound of a minibatch and its gradients: on one process or several, rounded or not, recorded as a graph.

`objective` computes them; `speed` says in which arithmetic, `parallel` on which processes, `graph` replays
recorded steps.
"""
