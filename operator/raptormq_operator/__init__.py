"""The Kubernetes operator: turns `BrokerCluster` and `Topic` resources into name servers, brokers and topics."""
