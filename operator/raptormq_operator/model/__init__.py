"""Values of the two resources as frozen dataclasses, read from their spec and knowing nothing of Kubernetes objects."""
