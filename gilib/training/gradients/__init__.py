"""The bound of a minibatch and its gradients: on one process or several, replayed, or rounded."""
