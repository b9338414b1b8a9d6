"""Access to the Kubernetes API: requests, credentials, watches, the leader's Lease and Events."""
