package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** The largest message is 4 MiB; one byte more is refused with a code, by the broker when the client lets it pass. */
final class SizeLimit implements Scenario {
    private static final int LIMIT_BYTES = 4 * 1024 * 1024;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("size_limit", 1);
        DefaultMQProducer producer = cluster.unstartedProducer("size_limit");
        producer.setMaxMessageSize(2 * LIMIT_BYTES);
        producer.setCompressMsgBodyOverHowmuch(2 * LIMIT_BYTES);
        producer.start();
        String largest = producer.send(new Message(topic, noise(LIMIT_BYTES)), 20_000).getSendStatus().name();
        int code = 0;
        try {
            producer.send(new Message(topic, noise(LIMIT_BYTES + 1)), 20_000);
        } catch (MQBrokerException refused) {
            code = refused.getResponseCode();
        }
        String afterwards = producer.send(Texts.message(topic, "small")).getSendStatus().name();
        producer.shutdown();
        return Map.of("4 MiB", largest, "4 MiB + 1 byte", code, "next", afterwards);
    }

    private static byte[] noise(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }
}
