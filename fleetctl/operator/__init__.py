"""The controller in a cluster: custom resources are the desired state."""
