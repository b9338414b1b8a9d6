"""End-to-end tests (`make e2e`) on a real Kubernetes cluster, from `helm install` to the results of Spark jobs."""
