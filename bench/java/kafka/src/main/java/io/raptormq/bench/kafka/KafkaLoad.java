package io.raptormq.bench.kafka;

import io.raptormq.bench.load.Peer;
import io.raptormq.bench.load.Run;
import io.raptormq.bench.load.Settings;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongConsumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's client: {@code acks=all}, {@code linger.ms} and {@code batch.size} as told, the other settings at their defaults (buffer.memory 32 MiB).
 *
 * <p>Settings besides those of {@link Run}: server, batch_bytes, delay_ms, total_bytes, auto_batch (off: no lingering, no batches).
 */
public final class KafkaLoad implements Peer {
    private static final String TIMEOUT_MILLIS = "120000";
    /** Partitions; a controller refuses to make 10,000 in one step. */
    private static final int MOST_AT_ONCE = 2_000;

    private final Settings settings;

    private KafkaLoad(Settings settings) {
        this.settings = settings;
    }

    public static void main(String[] arguments) {
        Settings settings = Settings.parse(arguments);
        Run.main(new KafkaLoad(settings), settings);
    }

    @Override
    public void createTopic(String topic, int queues) throws Exception {
        Map<String, Object> options = Map.of(
                "bootstrap.servers", settings.text("server"), "request.timeout.ms", TIMEOUT_MILLIS, "default.api.timeout.ms", TIMEOUT_MILLIS);
        try (Admin admin = Admin.create(options)) {
            admin.createTopics(List.of(replicatedAsBrokersDo(topic, Math.min(queues, MOST_AT_ONCE)))).all().get();
            for (int now = MOST_AT_ONCE; now < queues; ) {
                now = Math.min(now + MOST_AT_ONCE, queues);
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(now))).all().get();
            }
        }
    }

    /** As many replicas as default.replication.factor of the brokers says. */
    private static NewTopic replicatedAsBrokersDo(String topic, int partitions) {
        return new NewTopic(topic, Optional.of(partitions), Optional.empty());
    }

    @Override
    public void consume(String topic, LongConsumer born) {
        Thread thread = new Thread(new PollLoop(settings.text("server"), topic, born), "consumer");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public Sender sender(String topic) {
        boolean batches = settings.isOn("auto_batch");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", settings.text("server"),
                "acks", "all",
                "linger.ms", batches ? settings.text("delay_ms") : "0",
                "batch.size", batches ? settings.text("batch_bytes") : "0",
                "buffer.memory", settings.text("total_bytes"),
                "key.serializer", ByteArraySerializer.class.getName(),
                "value.serializer", ByteArraySerializer.class.getName()));
        return (body, answer) -> producer.send(new ProducerRecord<>(topic, body), (metadata, error) -> answer.accept(error));
    }
}
