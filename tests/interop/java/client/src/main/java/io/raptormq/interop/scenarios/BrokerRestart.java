package io.raptormq.interop.scenarios;

import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Messages and group offsets outlive the broker. Two scenarios with the same topic: {@link Before} sends twice as much as it consumes and
 * is played before the restart, {@link After} consumes the rest and is played after it.
 */
final class BrokerRestart {
    private static final int EACH = 80;

    private BrokerRestart() {}

    /** Sends, consumes and commits the first half, then sends the second half. */
    static final class Before implements Scenario {
        @Override
        public Map<String, Object> play(Cluster cluster) throws Exception {
            String topic = cluster.createTopic("broker_restart", 4);
            send(cluster, topic, 0);
            Inbox inbox = consume(cluster, topic);
            send(cluster, topic, EACH);
            return Map.of("equal", inbox.bodies().equals(Texts.bodies("restart", 0, EACH)));
        }
    }

    /** Consumes the second half and nothing of the first. */
    static final class After implements Scenario {
        @Override
        public Map<String, Object> play(Cluster cluster) throws Exception {
            Inbox inbox = consume(cluster, cluster.name("broker_restart"));
            return Map.of("equal", inbox.bodies().equals(Texts.bodies("restart", EACH, 2 * EACH)));
        }
    }

    private static void send(Cluster cluster, String topic, int from) throws Exception {
        DefaultMQProducer producer = cluster.producer("broker_restart_" + from);
        for (Message message : Texts.messages(topic, "restart", from, from + EACH)) {
            producer.send(message);
        }
        producer.shutdown();
    }

    private static Inbox consume(Cluster cluster, String topic) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("broker_restart", topic, "*", inbox);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.start();
        inbox.awaitBodies(EACH);
        consumer.shutdown();
        return inbox;
    }
}
