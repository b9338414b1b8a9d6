"""The Kubernetes operator: creates name servers, brokers and topics from `BrokerCluster` and `Topic` resources."""
