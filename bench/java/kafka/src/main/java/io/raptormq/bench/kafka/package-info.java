/** The load with Kafka's official client, as the OpenMessaging Benchmark's Kafka driver sets it up. */
package io.raptormq.bench.kafka;
