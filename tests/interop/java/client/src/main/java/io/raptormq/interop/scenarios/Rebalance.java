package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A group of one consumer, then of two, then of the other alone: the queues move at once and no message is lost. */
final class Rebalance implements Scenario {
    private static final int QUEUES = 8;
    private static final int EACH = 200;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("rebalance", QUEUES);
        Inbox both = new Inbox();
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQProducer producer = cluster.producer("rebalance");
        DefaultMQPushConsumer first = cluster.pushConsumer("rebalance", topic, "*", both);
        first.start();
        Assignment.await(first, QUEUES);
        outcome.put("alone", Assignment.queues(first));
        send(producer, topic, 0);
        DefaultMQPushConsumer second = cluster.pushConsumer("rebalance", topic, "*", both);
        second.start();
        Assignment.await(first, QUEUES / 2);
        Assignment.await(second, QUEUES / 2);
        outcome.put("together", Assignment.queues(first) + " and " + Assignment.queues(second));
        send(producer, topic, EACH);
        both.awaitBodies(2 * EACH);
        first.shutdown();
        Assignment.await(second, QUEUES);
        outcome.put("other alone", Assignment.queues(second));
        send(producer, topic, 2 * EACH);
        both.awaitBodies(3 * EACH);
        second.shutdown();
        producer.shutdown();
        outcome.put("equal", both.bodies().equals(Texts.bodies("rebalance", 0, 3 * EACH)));
        return outcome;
    }

    private static void send(DefaultMQProducer producer, String topic, int from) throws Exception {
        for (Message message : Texts.messages(topic, "rebalance", from, from + EACH)) {
            producer.send(message);
        }
    }
}
