package io.raptormq.interop.scenarios;

import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** In broadcasting mode each consumer of a group receives every message. */
final class Broadcasting implements Scenario {
    private static final int COUNT = 50;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("broadcasting", 4);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer one = listen(cluster, topic, first);
        DefaultMQPushConsumer other = listen(cluster, topic, second);
        DefaultMQProducer producer = cluster.producer("broadcasting");
        for (Message message : Texts.messages(topic, "news", 0, COUNT)) {
            producer.send(message);
        }
        first.awaitBodies(COUNT);
        second.awaitBodies(COUNT);
        producer.shutdown();
        one.shutdown();
        other.shutdown();
        return Map.of("first", first.bodies().size(), "second", second.bodies().size());
    }

    private static DefaultMQPushConsumer listen(Cluster cluster, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = cluster.pushConsumer("broadcasting", topic, "*", inbox);
        consumer.setMessageModel(MessageModel.BROADCASTING);
        consumer.start();
        return consumer;
    }
}
