package io.raptormq.interop.scenarios;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Bodies that the producer compresses, by each method, come back as they were. */
final class CompressedSend implements Scenario {
    private static final String BODY = "0123456789".repeat(2_000);

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new LinkedHashMap<>();
        for (CompressionType type : CompressionType.values()) {
            String topic = cluster.createTopic("compressed_" + type, 1);
            DefaultMQProducer producer = cluster.unstartedProducer("compressed_" + type);
            producer.setCompressType(type);
            producer.start();
            Message message = Texts.message(topic, BODY);
            producer.send(message);
            producer.shutdown();
            outcome.put(type.name(), read(cluster, topic));
        }
        return outcome;
    }

    private static Map<String, Object> read(Cluster cluster, String topic) throws Exception {
        try (Reading reading = new Reading(cluster, topic + "_reader")) {
            List<MessageExt> messages = reading.all(topic);
            MessageExt message = messages.get(0);
            boolean small = message.getStoreSize() < BODY.length() / 10;
            return Map.of("count", messages.size(), "equal", Inbox.text(message).equals(BODY), "small", small);
        }
    }
}
