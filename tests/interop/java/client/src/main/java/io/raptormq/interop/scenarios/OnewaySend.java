package io.raptormq.interop.scenarios;

import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** One-way sends: nobody answers, a consumer receives them all. */
final class OnewaySend implements Scenario {
    private static final int COUNT = 100;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("oneway", 4);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("oneway", topic, "*", inbox);
        consumer.start();
        DefaultMQProducer producer = cluster.producer("oneway");
        for (Message message : Texts.messages(topic, "oneway", 0, COUNT)) {
            producer.sendOneway(message);
        }
        inbox.awaitBodies(COUNT);
        producer.shutdown();
        consumer.shutdown();
        return Map.of("equal", inbox.bodies().equals(Texts.bodies("oneway", 0, COUNT)));
    }
}
