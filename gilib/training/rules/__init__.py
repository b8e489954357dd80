"""Rules: what a training step does with the bound and its gradients; `base` defines the interfaces."""
