"""Sources: objects that are kept equal to the manifests of a repository."""
