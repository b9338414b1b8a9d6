"""Pure builders of Kubernetes objects, as plain dicts, from the values of `raptormq_operator.model`."""
