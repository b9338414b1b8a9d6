"""The asyncio shell around the Kubernetes API: requests, credentials, the leader's Lease, Events. Decides nothing."""
