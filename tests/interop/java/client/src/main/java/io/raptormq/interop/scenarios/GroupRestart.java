package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A consumer that stops and starts again goes on where its group was; messages sent in between are there. */
final class GroupRestart implements Scenario {
    private static final int EACH = 60;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("group_restart", 4);
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQProducer producer = cluster.producer("group_restart");
        for (int run = 0; run < 3; run++) {
            for (Message message : Texts.messages(topic, "run", run * EACH, (run + 1) * EACH)) {
                producer.send(message);
            }
            Inbox inbox = consume(cluster, topic, EACH);
            outcome.put("run " + run, inbox.bodies().equals(Texts.bodies("run", run * EACH, (run + 1) * EACH)));
        }
        producer.shutdown();
        return outcome;
    }

    private static Inbox consume(Cluster cluster, String topic, int count) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("group_restart", topic, "*", inbox);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.start();
        inbox.awaitBodies(count);
        consumer.shutdown();
        return inbox;
    }
}
