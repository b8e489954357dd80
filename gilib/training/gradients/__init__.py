"""The bound of a minibatch and its gradients: on one process or several, recorded, in rounded arithmetic."""
