/** The load with RocketMQ's official client, as the OpenMessaging Benchmark's RocketMQ driver sets it up. */
package io.raptormq.bench.rocketmq;
