"""The bound of a minibatch and its gradients: on one process or several, in full or rounded arithmetic.

`objective` computes them, `speed` chooses the arithmetic, and `parallel` splits the work among processes.
`replay` repeats a recorded step: as a CUDA graph or as a tape of CPU operations (`tape`).
"""
