"""The three custom resources as frozen dataclasses, read from their spec. Independent of other Kubernetes objects."""
