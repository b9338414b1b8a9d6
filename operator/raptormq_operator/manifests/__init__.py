"""Pure builders: values of `raptormq_operator.model` in, Kubernetes objects as plain dicts out. No request made."""
