package io.raptormq.bench.kafka;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongConsumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One consumer: polls, and commits what it has got without waiting, until the process ends. */
record PollLoop(String server, String topic, LongConsumer born) implements Runnable {
    private static final Duration POLL = Duration.ofMillis(100);

    @Override
    public void run() {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", server,
                "group.id", "batch-bench",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "max.partition.fetch.bytes", "10485760",
                "key.deserializer", ByteArrayDeserializer.class.getName(),
                "value.deserializer", ByteArrayDeserializer.class.getName()))) {
            consumer.subscribe(List.of(topic));
            while (true) {
                Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> message : consumer.poll(POLL)) {
                    born.accept(message.timestamp());
                    reached.put(new TopicPartition(topic, message.partition()), new OffsetAndMetadata(message.offset() + 1));
                }
                if (!reached.isEmpty()) {
                    consumer.commitAsync(reached, null);
                }
            }
        }
    }
}
