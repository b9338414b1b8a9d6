"""`make e2e`: the whole way on a real Kubernetes, from `helm install` to figures that Spark counted."""
